"""Short, stable hashes of weights and configurations, to recognise the model that an atlas was made from."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from headatlas.models.families import parameter

_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# numbers hashed at once: int64 copies of larger tensors would need too much memory
_CHUNK = 1 << 22


def fingerprint_model(model: nn.Module) -> str:
    """Hash all that a model would save: parameters and persistent buffers, as they are in memory."""
    return fingerprint_tensors(_tensors(model))


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield what `model.state_dict()` would have, but read in where accelerate offloads it."""
    for path, module in model.named_modules():
        saved = [n for n, b in module._buffers.items() if b is not None and n not in module._non_persistent_buffers_set]
        for name in [n for n, _ in module.named_parameters(recurse=False)] + saved:
            yield f"{path}.{name}", parameter(module, name)


@torch.no_grad()
def fingerprint_tensors(named: Iterable[tuple[str, Tensor]]) -> str:
    """Hash names, shapes, types and values.

    The bits of each value, as an integer, are multiplied by the value's place and summed exactly: one pass, the same on
    any device, and any edit or exchange of values changes it.
    """
    lines = []
    for name, tensor in named:
        flat = tensor.detach().contiguous().view(-1)
        bits = flat.view(_INTEGER[flat.element_size()])
        total = 0
        for start in range(0, len(bits), _CHUNK):
            piece = bits[start : start + _CHUNK].long()
            place = torch.arange(1, len(piece) + 1, device=piece.device)
            total = (total * 31 + int((piece * place).sum())) % (1 << 64)
        lines.append(f"{name} {tuple(tensor.shape)} {tensor.dtype} {total}\n")
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()[:16]


@torch.no_grad()
def fingerprint_values(tensors: Iterable[Tensor]) -> str:
    """Hash values rounded to bfloat16, without types: equal for bfloat16 and for float32 made from it."""
    digest = hashlib.sha256()
    for tensor in tensors:
        # rounded explicitly, to the nearest even number, so that every device and version rounds the same
        bits = tensor.detach().float().cpu().contiguous().view(torch.int32).to(torch.int64)
        digest.update(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).to(torch.int16).numpy().tobytes())
    return digest.hexdigest()[:16]


def hash_config(config: Any, tokenizer: Any) -> str:
    """Hash what decides a model's outputs besides its weights: configuration, tokenizer and chat template."""
    # these do not change outputs, and depend on how and from where the model was loaded
    ignored = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures", "use_cache"}
    settings = {k: v for k, v in config.to_dict().items() if k not in ignored and not k.startswith("_attn")}
    backend = getattr(tokenizer, "backend_tokenizer", None)
    vocabulary = json.loads(backend.to_str()) if backend is not None else tokenizer.get_vocab() if tokenizer else {}
    # the tokenizer's state, which changes as it is used
    vocabulary = {k: v for k, v in vocabulary.items() if k not in {"padding", "truncation"}}
    content = [settings, vocabulary, getattr(tokenizer, "chat_template", None)]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]
