import sys; sys.path[:0]=['src','.','benchmarks']
import torch, transformers, time, statistics
import headatlas as ha
from capture import compare, prompts
cfg=transformers.LlamaConfig(vocab_size=128256,hidden_size=4096,intermediate_size=14336,num_hidden_layers=32,num_attention_heads=32,num_key_value_heads=8,max_position_embeddings=8192)
with torch.device('cuda'):
    torch.set_default_dtype(torch.bfloat16); m=transformers.AutoModelForCausalLM.from_config(cfg); torch.set_default_dtype(torch.float32)
lm=ha.load(m.requires_grad_(False)); print(lm)
t=time.time(); f=lm.fingerprint(); torch.cuda.synchronize(); print('fingerprint',f,time.time()-t)
t=time.time(); f=lm.fingerprint(); torch.cuda.synchronize(); print('fingerprint again',f,time.time()-t)
for n in (64,256):
    b,c=compare(lm,prompts(lm,n,120),32,5); print(n,'bare',b,'capture',c,'ratio',c/b)
def last(): lm.head_outputs(texts,'last')
texts=prompts(lm,256,120)
from capture import timed
last(); print('last only',statistics.median(timed(last) for _ in range(5)))
inp=lm.batch(texts[:32])
g=torch.ones(32,32,device='cuda',requires_grad=True)
def up(gated):
    e=lm.gated(g) if gated else None
    if e: e.__enter__()
    out=lm.model.base_model(**inp,use_cache=False).last_hidden_state.float().pow(2).mean()
    if e: e.__exit__(None,None,None)
    return out
with torch.no_grad():
    for k in (False,True): up(k)
    for k in (False,True): print('forward gated' if k else 'forward bare', statistics.median(timed(lambda: up(k)) for _ in range(10)))
