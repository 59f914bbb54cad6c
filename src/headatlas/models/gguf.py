"""From a GGUF file to a model folder that is kept in the cache: dequantised once, one tensor at a time.

1. Read the header: its metadata, and where its tensors lie. A file that ends too early is recognised here.
2. transformers makes the configuration and the tokenizer, names the tensors and undoes what GGUF writers do to some of
   them (llama's order of query and key rows, Gemma's norms plus one).
3. Every tensor is dequantised, checked and stored in the smallest type that holds the file's precision: float32,
   float16 and bfloat16 as they are, quantised ones as float16. Their values are a float16 scale times a small integer,
   so float16 is within 0.02 % (bfloat16: 0.2 %), far below what quantising has cost. config.json says float32, which is
   how the model is run.
"""

import json
import logging
import os
import re
import struct
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PretrainedConfig, PreTrainedModel
from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

from headatlas.errors import BadFile, HeadAtlasError, one_line
from headatlas.models.cache import built_aside, converted
from headatlas.models.checkpoint_reader import check_finite
from headatlas.models.library_settings import quiet_transformers
from headatlas.models.memory import skeleton
from headatlas.models.offloaded import check_complete
from headatlas.progress import default_progress

log = logging.getLogger(__name__)

SHARD = 2**27  # bytes of a safetensors file, where tensors are not larger
PIECE = 2**20  # numbers dequantised at once
THREADS = 8  # that do so, at most
KEPT = {
    GGMLQuantizationType.F32: torch.float32,
    GGMLQuantizationType.F16: torch.float16,
    GGMLQuantizationType.BF16: torch.bfloat16,
}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class Entry:
    """A tensor of the file: its shape as torch counts, its type, and where it lies."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    start: int
    size: int  # bytes


@dataclass(frozen=True)
class Header:
    """What a GGUF file says of itself: numbers and texts by key (no arrays), and its tensors."""

    path: Path
    metadata: dict[str, Any]
    tensors: tuple[Entry, ...]


def from_gguf(path: Path) -> Path:
    """A folder with the same model as safetensors, dequantised on first use and from the cache afterwards."""
    target = converted(path)
    if not target.is_dir():
        header = read_header(path)
        log.info("dequantising %s, once", path.name)
        with _as_bad_file(path), quiet_transformers():
            source = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name, "local_files_only": True}
            config = AutoConfig.from_pretrained(**source)
            set_rotary(header, config)
            model = skeleton(config)
            tokenizer = AutoTokenizer.from_pretrained(**source)
            finish_tokenizer(header, tokenizer)
        with built_aside(target) as aside:
            _save(_tensors(header, model), aside)
            config.dtype, config.architectures = torch.float32, [type(model).__name__]
            with quiet_transformers():
                config.save_pretrained(aside)
                tokenizer.save_pretrained(aside)
                if model.can_generate():
                    model.generation_config.save_pretrained(aside)
    return target


@contextmanager
def _as_bad_file(path: Path) -> Iterator[None]:
    """Readers trust the file: a damaged one can fail anywhere, even panic in Rust."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, HeadAtlasError):
        raise
    except BaseException as e:
        raise BadFile(f"cannot read {path} as a GGUF model: {one_line(e)}") from e


# --- 1. the header


def read_header(path: Path) -> Header:
    """The header of a GGUF file, and that the file has every tensor its header promises."""
    size = path.stat().st_size
    with _as_bad_file(path), path.open("rb") as f:
        reader = _Reader(f, size, path)
        if reader.take(4) != b"GGUF":
            raise ValueError("it does not begin with 'GGUF'")
        version = reader.number("<I")
        if version not in (2, 3):
            raise ValueError(f"its version is {version}, expected 2 or 3")
        n_tensors, n_keys = reader.number("<Q"), reader.number("<Q")
        metadata = {reader.text(): reader.value(reader.number("<I")) for _ in range(n_keys)}
        table = []
        for _ in range(n_tensors):
            name = reader.text()
            shape = tuple(reader.number("<Q") for _ in range(reader.number("<I")))[::-1]
            table.append((name, shape, GGMLQuantizationType(reader.number("<I")), reader.number("<Q")))
        alignment = metadata.get("general.alignment", 32)
        data = -(-f.tell() // alignment) * alignment
        tensors = []
        for name, shape, kind, offset in table:
            block, n_bytes = GGML_QUANT_SIZES[kind]
            if not shape or shape[-1] % block:
                raise ValueError(f"its tensor {name} of shape {shape} cannot be {kind.name}")
            tensors.append(Entry(name, shape, kind, data + offset, prod(shape) // block * n_bytes))
        if tensors:
            reader.check(max(t.start + t.size for t in tensors))
    return Header(path, metadata, tuple(tensors))


class _Reader:
    """Numbers and texts from a file, never past its end."""

    def __init__(self, file: BinaryIO, size: int, path: Path) -> None:
        self.file, self.size, self.path = file, size, path

    def check(self, end: int) -> None:
        if end > self.size:
            raise BadFile(
                f"{self.path} is truncated: it has {self.size:,} bytes, but its header speaks of at least {end:,};"
                " fetch it again"
            )

    def take(self, n: int) -> bytes:
        self.check(self.file.tell() + n)
        return self.file.read(n)

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self) -> str:
        return self.take(self.number("<Q")).decode()

    def value(self, kind: int) -> Any:
        """A number or a text; None for an array, which is passed over."""
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.number(_FORMATS[kind])
        of, n = self.number("<I"), self.number("<Q")
        if of in _FORMATS:
            self.check(self.file.tell() + n * struct.calcsize(_FORMATS[of]))
            self.file.seek(n * struct.calcsize(_FORMATS[of]), 1)
        else:
            for _ in range(n):
                self.value(of)
        return None


# --- 2. which tokens open and close a text

# Byte-level vocabularies by the name of their pre-tokenizer. In these, a word that is a token is never split:
_WHOLE_WORDS = {
    "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano", "tekken",
}  # fmt: skip
# Texts begin with BOS: llama.cpp adds it (to those above and chameleon), or tokenizers on the hub do. Others have none.
_OPENED = _WHOLE_WORDS | {
    "chameleon", "gemma4", "smaug-bpe", "llama4", "command-r", "deepseek-llm", "deepseek-coder", "deepseek-v3",
}  # fmt: skip


def opens_with_bos(metadata: dict[str, Any]) -> bool | None:
    """Whether texts begin with BOS: what the file says, or else what models of its kind do; None if unknown."""
    key = metadata.get("tokenizer.ggml.add_bos_token")
    kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "default")
    bos, eos = (metadata.get(f"tokenizer.ggml.{end}_token_id") for end in ("bos", "eos"))
    if key is not None:
        return bool(key)
    if kind in ("llama", "gemma4"):  # SentencePiece: Llama 1 and 2, Mistral, Gemma
        return True
    if kind == "gpt2" and pre in _OPENED:
        return True
    if kind != "gpt2" or pre != "default" or bos is None or bos == eos:  # one token for both: GPT-2 and its kin
        return False
    return None


def finish_tokenizer(header: Header, tokenizer: Any) -> None:
    """Set what transformers does not read from the file: BOS and EOS around a text, and words that are never split."""
    prefix = "tokenizer.ggml."
    settings = {k.removeprefix(prefix): v for k, v in header.metadata.items() if k.startswith(prefix)}
    bos = opens_with_bos(header.metadata)
    if bos and tokenizer.bos_token is None and settings.get("model") == "llama":
        tokenizer.bos_token = tokenizer.convert_ids_to_tokens(1)  # where SentencePiece has it
    if bos is None or (bos and tokenizer.bos_token is None):
        log.warning(
            "%s does not say whether texts begin with %s: they are encoded without it",
            header.path,
            tokenizer.bos_token or "BOS, and which token that is",
        )
    tokenizer.add_bos_token = bool(bos)
    tokenizer.add_eos_token = bool(settings.get("add_eos_token", settings.get("model") == "t5"))
    if settings.get("model") == "gpt2" and settings.get("pre") in _WHOLE_WORDS:
        tokenizer.backend_tokenizer.model.ignore_merges = True


# --- 3. the tensors


def set_rotary(header: Header, config: PretrainedConfig) -> None:
    """Scaled rotary frequencies, which transformers does not read: Llama 3's are recognised; others are left out, with
    a warning."""
    kind = header.metadata.get(f"{header.metadata['general.architecture']}.rope.scaling.type", "none")
    tables = [t for t in header.tensors if t.name.startswith("rope_")]
    rope = getattr(config, "rope_parameters", None) or {}
    plain = rope.get("rope_type") == "default"
    if plain and [t.name for t in tables] == ["rope_freqs.weight"]:
        factors = torch.from_numpy(_dequantised(header.path, tables[0])).double()
        scaling = LLAMA3 | {"factor": factors.max().item()}
        if torch.allclose(factors, _llama3_factors(rope["rope_theta"], len(factors), scaling), rtol=1e-3):
            config.rope_parameters = rope | {"rope_type": "llama3"} | scaling
            return
    if tables or (plain and kind != "none"):
        log.warning(
            "%s scales its rotary positions (%s): that is left out, so it is not quite the model that was trained",
            header.path,
            tables[0].name if tables else f"rope.scaling.type {kind}",
        )


def _llama3_factors(theta: float, n: int, scaling: dict[str, float]) -> Tensor:
    """What Llama 3.1 and 3.2 divide each of n rotary frequencies by: 1 if it turns often within the original context,
    `factor` if it does not turn once, and a mix of both in between."""
    frequency = theta ** (-torch.arange(n, dtype=torch.float64) / n)
    turns = scaling["original_max_position_embeddings"] * frequency / (2 * torch.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    mix = ((turns - low) / (high - low)).clamp(0, 1)
    return 1 / ((1 - mix) / scaling["factor"] + mix)


def _tensors(header: Header, model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """The model's tensors under transformers' names, as they are to be stored. A file that lacks one, or has one too
    many, is refused before the first."""
    architecture = header.metadata["general.architecture"]
    with _as_bad_file(header.path):
        processor = TENSOR_PROCESSORS.get(architecture, TensorProcessor)(config=model.config.to_dict())
        try:
            names = get_gguf_hf_weights_map(model, processor)
        except NotImplementedError:
            names = {}
    if not names:  # one of the few architectures that transformers reads in another way, all at once
        yield from _loaded(header, model.config)
        return
    targets = _targets(header, model, names)
    expected = {name: tensor.shape for name, tensor in model.state_dict().items()}
    left = Counter(targets.values())  # the experts' gates and ups, two tensors of the file, are one of the model
    done: dict[str, Any] = {"tensors": {}}
    for entry in _by_size(header):
        target = targets.get(entry.name)
        if target is None:
            continue
        with _as_bad_file(header.path):
            array = _dequantised(header.path, entry)
            result = processor.process(weights=array, name=entry.name, tensor_key_mapping=names, parsed_parameters=done)
            if result.name is not None:
                done["tensors"][target] = torch.from_numpy(np.ascontiguousarray(result.weights))
        left[target] -= 1
        if not left[target]:
            tensor = done["tensors"].pop(target)
            if tensor.shape != expected[target]:
                check_complete(str(header.path), {"missing_keys": [], "mismatched_keys": [target]})
            yield target, tensor.to(KEPT.get(entry.kind, tensor.dtype))


def _targets(header: Header, model: PreTrainedModel, names: dict[str, str]) -> dict[str, str]:
    """For each tensor of the file, the tensor of the model that it is, or is part of. Tied ones are left out."""
    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    expected = set(model.state_dict())
    targets = {}
    for entry in header.tensors:
        bare = entry.name.removesuffix(".weight")  # experts are parameters of their own, without `.weight`
        target = names.get(entry.name) or names.get(bare) or {"output.weight": "lm_head.weight"}.get(entry.name, "")
        if target in expected:
            if target not in tied:
                targets[entry.name] = target
        elif not entry.name.startswith("rope_"):
            raise BadFile(f"{header.path} has a tensor {entry.name}, which is not one of a {type(model).__name__}")
    may_lack = re.compile("|".join(model._keys_to_ignore_on_load_missing or ["$^"]))
    missing = [n for n in expected - tied - set(targets.values()) if not may_lack.search(n)]
    check_complete(str(header.path), {"missing_keys": missing, "mismatched_keys": []})
    return targets


def _by_size(header: Header) -> Iterator[Entry]:
    """Tensors one by one, with progress in equal pieces, so that the time left is right."""
    pieces = [(t, i == 0) for t in header.tensors for i in range(1 + prod(t.shape) // PIECE)]
    for entry, first in default_progress.get()(pieces, f"dequantising {header.path.name}"):
        if first:
            yield entry


def _dequantised(path: Path, entry: Entry) -> np.ndarray:
    """A tensor of the file in float32, or in float16 where that holds the file's precision."""
    wide = entry.kind in (GGMLQuantizationType.F32, GGMLQuantizationType.BF16)
    out = np.empty((prod(entry.shape[:-1]), entry.shape[-1]), np.float32 if wide else np.float16)
    if not _fill(out, path, entry):
        out = out.astype(np.float32)
        _fill(out, path, entry)
    return out.reshape(entry.shape)


def _fill(out: np.ndarray, path: Path, entry: Entry) -> bool:
    """Dequantise into `out` [row, column], several pieces at once; False where a number is too large for its type."""
    block, n_bytes = GGML_QUANT_SIZES[entry.kind]
    row, step, largest = entry.shape[-1] // block * n_bytes, max(1, PIECE // entry.shape[-1]), np.finfo(out.dtype).max

    def fill(first: int) -> bool:
        here = out[first : first + step]
        raw = np.fromfile(path, np.uint8, row * len(here), offset=entry.start + first * row)
        values = dequantize(raw.reshape(len(here), row), entry.kind)
        peak = np.abs(values).max()
        if not np.isfinite(peak):  # asked of NumPy: torch would start threads of its own in every one of these
            check_finite(entry.name, torch.from_numpy(values), path)
        fits = bool(peak <= largest)
        if fits:
            here[:] = values
        return fits

    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        return all(pool.map(fill, range(0, len(out), step)))


def _loaded(header: Header, config: PretrainedConfig) -> Iterator[tuple[str, Tensor]]:
    """The model's tensors by transformers' own loader, which needs room for all of them in float32."""
    path, quantised = header.path, any(t.kind not in KEPT for t in header.tensors)
    with _as_bad_file(path), quiet_transformers():
        model, info = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, local_files_only=True, dtype=torch.float32, output_loading_info=True
        )
    check_complete(str(path), info)
    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    for name, tensor in model.state_dict().items():
        if name not in tied:
            check_finite(name, tensor, path)
            small = quantised and tensor.ndim > 1 and tensor.abs().max() <= torch.finfo(torch.float16).max
            yield name, tensor.to(torch.float16) if small else tensor


def _save(tensors: Iterator[tuple[str, Tensor]], folder: Path) -> None:
    """Tensors as safetensors files with an index, each file written as soon as it is full."""
    files: dict[str, str] = {}
    shard: dict[str, Tensor] = {}
    total = 0

    def write() -> None:
        file = f"model-{len(set(files.values())) + 1:05d}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        files.update(dict.fromkeys(shard, file))
        shard.clear()

    for name, tensor in tensors:
        if shard and sum(t.nbytes for t in shard.values()) + tensor.nbytes > SHARD:
            write()
        shard[name] = tensor.contiguous()
        total += tensor.nbytes
    write()
    index = {"metadata": {"total_size": total}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
