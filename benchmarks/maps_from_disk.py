"""Measure the memory of `maps` on a checkpoint that is read from disk, layer by layer.

    python benchmarks/maps_from_disk.py --shape 70b --folder DIR     80 × 64 heads, d = 8192, V = 128,256: writes 18 GB
    python benchmarks/maps_from_disk.py --shape small --folder DIR   the same at the scale of a test
    python benchmarks/maps_from_disk.py --input stream --folder DIR  all blocks, which the stream passes through

Writes the tensors that maps needs, with random numbers in bfloat16 and in shards, then runs maps in a fresh process.
Prints the peak anonymous memory of that process. It excludes pages of mapped files, which the system reclaims when it
needs memory.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from common import PeakMemory, make_parser, time_call
from safetensors.torch import save_file
from transformers import LlamaConfig

from headatlas.methods.maps.compute import Pairs
from headatlas.methods.maps.real_runs import find_hits
from headatlas.models.weights import Weights
from headatlas.terminal import bar

SHAPES = {  # layers, heads, KV heads, d_head, d_model, MLP, vocabulary
    "70b": (80, 64, 8, 128, 8192, 28_672, 128_256),
    "small": (60, 8, 2, 256, 2048, 2048, 512),
    "blocks": (32, 16, 4, 64, 1024, 4096, 8192),
    "small-blocks": (23, 8, 2, 64, 1024, 4096, 1024),
}


def write_checkpoint(folder: Path, shape: str, all_blocks: bool) -> int:
    """Write the needed tensors and return their size in bytes. Layers are rolled copies of one draw, which is fast.

    all_blocks: write all tensors of every block, instead of W_V and W_O of each and all of block 0.
    """
    layers, heads, kv, d_head, d, mlp, vocabulary = SHAPES[shape]
    folder.mkdir(parents=True)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=d,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        head_dim=d_head,
        tie_word_embeddings=False,
        dtype="bfloat16",
    )
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    torch.manual_seed(0)

    def draw(*size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.bfloat16).normal_(std=0.02)

    shards: dict[str, str] = {}

    def shard(name: str, tensors: dict[str, torch.Tensor]) -> None:
        save_file(tensors, folder / name, metadata={"format": "pt"})
        shards.update(dict.fromkeys(tensors, name))

    shard("embed.safetensors", {"model.embed_tokens.weight": draw(vocabulary, d)})
    shard(
        "head.safetensors",
        {"lm_head.weight": draw(vocabulary, d), "model.norm.weight": torch.ones(d, dtype=torch.bfloat16)},
    )
    matrix_shapes = {"mlp.gate_proj": (mlp, d), "mlp.up_proj": (mlp, d), "mlp.down_proj": (d, mlp)}
    matrix_shapes |= {"self_attn.q_proj": (heads * d_head, d), "self_attn.k_proj": (kv * d_head, d)}
    block_tensors = {f"{name}.weight": draw(*size) for name, size in matrix_shapes.items()}
    block_tensors |= {f"{n}.weight": torch.ones(d).bfloat16() for n in ("input_layernorm", "post_attention_layernorm")}
    value, output = draw(kv * d_head, d), draw(d, heads * d_head)
    for layer in range(layers):
        tensors = {"self_attn.v_proj.weight": value.roll(layer, 0), "self_attn.o_proj.weight": output.roll(layer, 1)}
        tensors |= block_tensors if all_blocks or layer == 0 else {}
        named_tensors = {f"model.layers.{layer}.{name}": tensor for name, tensor in tensors.items()}
        shard(f"layer-{layer}.safetensors", named_tensors)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    return sum(p.stat().st_size for p in folder.glob("*.safetensors"))


def measure(folder: Path, n_pairs: int, input: str) -> None:
    torch.zeros(64, 64) @ torch.zeros(64, 64)
    vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
    source, target = torch.randint(vocabulary, (2, n_pairs), generator=torch.Generator().manual_seed(1))
    pairs = Pairs(torch.zeros(n_pairs, dtype=torch.long), source, target, torch.full_like(source, 25))
    opening = (0, 1, 2) if input == "stream" else ()

    def work() -> object:
        model = SimpleNamespace(weights=Weights.from_disk(folder), device="cpu")
        return find_hits(model, pairs, input=input, opening=opening, progress=bar)

    with PeakMemory() as memory:
        seconds = time_call(work)
    print(json.dumps({"before_mb": memory.before, "peak_mb": memory.peak, "seconds": seconds}))


def main() -> None:
    parser = make_parser(__doc__, pairs=200)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--folder", type=Path, required=True, help="folder for the checkpoint; removed afterwards")
    parser.add_argument("--input", choices=["published", "stream"], default="published")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        return measure(options.folder, options.pairs, options.input)
    layers, heads, kv, d_head, d, mlp, vocabulary = SHAPES[options.shape]
    all_blocks = options.input == "stream"
    blocks = layers * ((heads + kv) * d_head * d + all_blocks * (3 * mlp + (heads + kv) * d_head) * d)
    disk_bytes = 2 * (2 * vocabulary * d + 3 * mlp * d + blocks)
    options.folder.parent.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(options.folder.parent).free < 1.2 * disk_bytes:
        print(f"skipped: {options.folder.parent} has less than {1.2 * disk_bytes / 1e9:.0f} GB free")
        return None
    size = write_checkpoint(options.folder, options.shape, all_blocks)
    command = [sys.executable, __file__, "--measure", "--folder", options.folder, "--pairs", options.pairs]
    command += ["--input", options.input]
    # glibc keeps freed blocks under 32 MB, which at the small shape is every tensor; this makes it return them.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    process = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True, check=True, env=environment)
    result = json.loads(process.stdout)
    shutil.rmtree(options.folder)
    print(f"{options.shape}: {layers} layers × {heads} heads, {options.pairs} pairs, {size / 1e6:.0f} MB on disk")
    print("memory before {before_mb:.0f} MB, at most {peak_mb:.0f} MB; {seconds:.0f} s".format(**result))
    return None


if __name__ == "__main__":
    main()
