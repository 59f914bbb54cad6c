"""Measure time and memory of editing a sharded checkpoint: heads removed, scaled, and groups dropped.

python benchmarks/edit_memory.py --layers 12 --out /tmp/large
"""

import json
import shutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
from common import PeakMemory, make_parser, time_call
from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaConfig

import headatlas as ha
from headatlas.models.memory import skeleton

SHARD_BYTES = 400e6


def write_model(folder: Path, layers: int) -> float:
    """Write a Llama checkpoint with constant weights in bfloat16, in shards. Returns its size in GB."""
    shape = {"hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 24, "num_key_value_heads": 8}
    config = LlamaConfig(vocab_size=64_000, num_hidden_layers=layers, dtype=torch.bfloat16, **shape)
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    files: dict[str, str] = {}
    shard: dict[str, Tensor] = {}
    total = 0
    tensors = skeleton(config).state_dict().items()
    for i, (name, tensor) in enumerate(tensors, 1):
        shard[name] = torch.full(tensor.shape, 0.01, dtype=torch.bfloat16)
        total += shard[name].nbytes
        if sum(t.nbytes for t in shard.values()) > SHARD_BYTES or i == len(tensors):
            file = f"model-{len(set(files.values())) + 1:05d}.safetensors"
            save_file(shard, folder / file, metadata={"format": "pt"})
            files |= dict.fromkeys(shard, file)
            shard = {}
    index = {"metadata": {"total_size": total}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total / 1e9


def main() -> None:
    parser = make_parser(__doc__, layers=12)
    parser.add_argument("--out", required=True, help="folder to work in, on a disk with sufficient space")
    args = parser.parse_args()
    old, new = Path(args.out) / "old", Path(args.out) / "new"
    # In another process: memory that the allocator keeps would hide what editing takes.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        size = pool.submit(write_model, old, args.layers).result()
    groups = [f"L{layer}.H{head}" for layer in range(args.layers) for head in range(12)]
    edits = {
        "two heads removed": {"remove": "L3.H1,L7.H2"},
        "a head of every layer scaled": {"scale": {f"L{i}.H1": 0.3 for i in range(args.layers)}},
        "four groups of every layer dropped": {"remove": groups, "prune": True},
    }
    for name, options in edits.items():
        with PeakMemory() as memory:
            seconds = time_call(lambda options=options: ha.edit(old, **options, out=new))
        print(f"{size:.1f} GB, {name}: {seconds:.1f} s, {memory.peak - memory.before:.0f} MB of memory")
        shutil.rmtree(new)
    shutil.rmtree(old)


if __name__ == "__main__":
    main()
