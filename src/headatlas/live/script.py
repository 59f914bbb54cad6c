"""Write what the page shows as a Python script that uses public names only."""

from collections.abc import Sequence

from headatlas.live.question import Question
from headatlas.models.lm import LM

SCRIPT = """\
import torch

import headatlas as ha

{load}
prompt = {prompt}
answers = {answers}

gate = torch.ones(lm.n_layers, lm.n_heads)  # 1: unchanged, 0: removed
{switch}

@torch.no_grad()
def show() -> None:
    log_p = lm.model(**lm.batch(prompt)).logits[0, -1].float().log_softmax(-1)
    for value, token in zip(*log_p.topk(10)):
        print(f"{{value.exp().item():8.4f}}  {{lm.tokenizer.decode([token.item()])!r}}")
    for text, answer in answers.items():
        ids = lm.encode(prompt)[0] + answer
        log_p = lm.model(**lm.batch([ids])).logits[0].float().log_softmax(-1)
        total = sum(log_p[i - 1, ids[i]].item() for i in range(len(ids) - len(answer), len(ids)))
        print(f"log P({{text!r}}) = {{total:.4f}}")
    print(repr(lm.generate(prompt, {new})))


show()
with lm.gated(gate):
    show()
"""


def script(
    lm: LM, source: str | None, question: Question, target: Sequence[int] = (), other: Sequence[int] = ()
) -> str:
    """Return a script that prints next tokens, log P of the answers and a continuation, before and after the switch."""
    room = (lm.anatomy.context or 10**9) - len(lm.encode(question.prompt)[0])
    new = max(1, min(question.new, room))
    dtype = str(lm.model.dtype).removeprefix("torch.")
    load = f"lm = ha.load({source!r}, device={lm.device.type!r}, dtype={dtype!r})"
    if source is None:
        load = f"lm = ha.load(...)  # {lm.name!r}, as you loaded it"
    answers = {lm.tokenizer.decode(list(ids)): list(ids) for ids in (target, other) if ids}
    switch = [f"gate[{layer}, {head}] = {scale!r}" for layer, head, scale in question.heads]
    return SCRIPT.format(
        load=load,
        prompt=repr(question.prompt),
        answers=repr(answers),
        switch="\n".join(switch) or "# no head is switched",
        new=new,
    )
