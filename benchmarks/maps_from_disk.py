"""Memory of `maps` on a checkpoint that is never loaded.

    python benchmarks/maps_from_disk.py --shape 70b --folder DIR     80 × 64 heads, d = 8192, V = 128,256: writes about 18 GB
    python benchmarks/maps_from_disk.py --shape small --folder DIR   the same at the scale of a test

Writes the tensors maps needs, of random numbers in bfloat16 and in shards, then maps them in a fresh process and prints the
most memory that process had resident.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig

from headatlas.methods.maps import Pairs, hits
from headatlas.models.weights import Weights
from headatlas.terminal import bar

SHAPES = {  # layers, heads, KV heads, d_head, d_model, MLP, vocabulary
    "70b": (80, 64, 8, 128, 8192, 28_672, 128_256),
    "small": (240, 16, 4, 64, 1024, 2048, 8192),
}


def write(folder: Path, shape: str) -> int:
    """The checkpoint's needed tensors; returns their size in bytes. Layers are rolled copies of one draw, to write fast."""
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
    first = "model.layers.0."
    norms = {
        f"{first}{n}.weight": torch.ones(d, dtype=torch.bfloat16)
        for n in ("input_layernorm", "post_attention_layernorm")
    }
    parts = {"mlp.gate_proj": (mlp, d), "mlp.up_proj": (mlp, d), "mlp.down_proj": (d, mlp)}
    parts |= {"self_attn.q_proj": (heads * d_head, d), "self_attn.k_proj": (kv * d_head, d)}
    shard("first.safetensors", norms | {f"{first}{n}.weight": draw(*size) for n, size in parts.items()})
    value, output = draw(kv * d_head, d), draw(d, heads * d_head)
    for layer in range(layers):
        at = f"model.layers.{layer}.self_attn."
        shard(
            f"layer-{layer}.safetensors",
            {f"{at}v_proj.weight": value.roll(layer, 0), f"{at}o_proj.weight": output.roll(layer, 1)},
        )
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    return sum(p.stat().st_size for p in folder.glob("*.safetensors"))


def resident() -> float:
    """Most memory resident so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(folder: Path, n_pairs: int) -> None:
    torch.zeros(64, 64) @ torch.zeros(64, 64)
    before, start = resident(), time.perf_counter()
    weights = Weights.from_disk(folder)
    generator = torch.Generator().manual_seed(1)
    vocabulary = weights.anatomy and json.loads((folder / "config.json").read_text())["vocab_size"]
    source, target = torch.randint(vocabulary, (2, n_pairs), generator=generator)
    top, _ = hits(
        weights,
        Pairs(torch.zeros(n_pairs, dtype=torch.long), source, target, torch.full_like(source, 25)),
        progress=bar,
    )
    seconds = time.perf_counter() - start
    print(
        json.dumps(
            {
                "before_mb": before,
                "peak_mb": resident(),
                "seconds": seconds,
                "shape": top.shape,
                "hit": float(top.mean()),
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--folder", type=Path, required=True, help="where to write the checkpoint; removed afterwards")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        return measure(options.folder, options.pairs)
    layers, heads, kv, d_head, d, mlp, vocabulary = SHAPES[options.shape]
    needed = 2 * (2 * vocabulary * d + 3 * mlp * d + layers * (heads + kv) * d_head * d)
    options.folder.parent.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(options.folder.parent).free < 1.2 * needed:
        print(f"skipped: {options.folder.parent} has less than {1.2 * needed / 1e9:.0f} GB free")
        return None
    size = write(options.folder, options.shape)
    command = [sys.executable, __file__, "--measure", "--folder", options.folder, "--pairs", options.pairs]
    # glibc keeps freed blocks under 32 MB for reuse, which at the small shape is every tensor: have it give them back.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True, check=True, env=environment)
    found = json.loads(done.stdout)
    shutil.rmtree(options.folder)
    print(
        f"{options.shape}: {layers} layers × {heads} heads, {options.pairs} pairs, {size / 1e6:.0f} MB of tensors on disk"
    )
    print(f"resident before {found['before_mb']:.0f} MB, at most {found['peak_mb']:.0f} MB; {found['seconds']:.0f} s")
    return None


if __name__ == "__main__":
    main()
