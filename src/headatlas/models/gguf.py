"""Convert a GGUF file to a model folder in the cache: dequantised once, one tensor at a time.

1. Read the header: its metadata, and where its tensors are. A truncated file is recognised here.
2. transformers makes the configuration and the tokenizer, names the tensors, and undoes the changes that GGUF writers
   make to some of them (llama's order of query and key rows, Gemma's norms plus one).
3. Every tensor is dequantised, checked and stored in the smallest type that holds the file's precision: float32,
   float16 and bfloat16 unchanged, quantised ones as float16. Their values are a float16 scale times a small integer, so
   float16 is exact to 0.02 % (bfloat16: 0.2 %), far below the error of quantisation. config.json says float32, in which
   the model is run.
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
from headatlas.models.cache import atomic_folder, converted_folder
from headatlas.models.checkpoint_reader import check_finite
from headatlas.models.library_settings import quiet_transformers
from headatlas.models.memory import skeleton
from headatlas.models.offloaded import check_complete
from headatlas.progress import default_progress

log = logging.getLogger(__name__)

SHARD_BYTES = 2**27  # in a safetensors file, unless a single tensor is larger
PIECE_NUMBERS = 2**20  # dequantised at once by a thread
MAX_THREADS = 8
# types that are stored as they are; all others are quantised
FLOAT_TYPES = {
    GGMLQuantizationType.F32: torch.float32,
    GGMLQuantizationType.F16: torch.float16,
    GGMLQuantizationType.BF16: torch.bfloat16,
}
# what Llama 3.1 and 3.2 share; `factor` differs
LLAMA3_SCALING = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
# GGUF's numbers for types of metadata, as formats of `struct`
_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING = 8
_ARRAY = 9


@dataclass(frozen=True)
class Entry:
    """A tensor of the file.

    Args:
        shape: in torch's order of dimensions.
        start: byte of the file at which it begins.
        size: in bytes.
    """

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    start: int
    size: int


@dataclass(frozen=True)
class Header:
    """The header of a GGUF file.

    Args:
        metadata: numbers and texts by key; None for arrays.
    """

    path: Path
    metadata: dict[str, Any]
    tensors: tuple[Entry, ...]


def from_gguf(path: Path) -> Path:
    """Return a folder with the same model as safetensors files, converted on first use and cached afterwards."""
    target = converted_folder(path)
    if not target.is_dir():
        header = read_header(path)
        log.info("dequantising %s; this is done once", path.name)
        with _as_bad_file(path), quiet_transformers():
            source = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name, "local_files_only": True}
            config = AutoConfig.from_pretrained(**source)
            set_rotary(header, config)
            model = skeleton(config)
            tokenizer = AutoTokenizer.from_pretrained(**source)
            finish_tokenizer(header, tokenizer)
        with atomic_folder(target) as temporary:
            _save(_tensors(header, model), temporary)
            config.dtype = torch.float32
            config.architectures = [type(model).__name__]
            with quiet_transformers():
                config.save_pretrained(temporary)
                tokenizer.save_pretrained(temporary)
                if model.can_generate():
                    model.generation_config.save_pretrained(temporary)
    return target


@contextmanager
def _as_bad_file(path: Path) -> Iterator[None]:
    """Raise any error of the block as `BadFile`: readers trust the file, and a damaged one can fail anywhere."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, HeadAtlasError):
        raise
    # not only Exception: a panic in Rust is a BaseException
    except BaseException as e:
        raise BadFile(f"cannot read {path} as a GGUF model: {one_line(e)}") from e


# --- 1. the header


def read_header(path: Path) -> Header:
    """Read the header of a GGUF file, and check that the file is as long as its header says."""
    size = path.stat().st_size
    with _as_bad_file(path), path.open("rb") as f:
        reader = _Reader(f, size, path)
        if reader.take(4) != b"GGUF":
            raise ValueError("it does not begin with 'GGUF'")
        version = reader.number("<I")
        if version not in (2, 3):
            raise ValueError(f"its version is {version}, expected 2 or 3")
        n_tensors = reader.number("<Q")
        n_keys = reader.number("<Q")
        metadata = {reader.text(): reader.value(reader.number("<I")) for _ in range(n_keys)}
        table = []
        for _ in range(n_tensors):
            name = reader.text()
            # GGUF lists the innermost dimension first
            shape = tuple(reader.number("<Q") for _ in range(reader.number("<I")))[::-1]
            table.append((name, shape, GGMLQuantizationType(reader.number("<I")), reader.number("<Q")))
        alignment = metadata.get("general.alignment", 32)
        # tensors begin after the header, at the next multiple of the alignment
        data_start = -(-f.tell() // alignment) * alignment
        tensors = []
        for name, shape, kind, offset in table:
            block, n_bytes = GGML_QUANT_SIZES[kind]
            if not shape or shape[-1] % block:
                raise ValueError(f"its tensor {name} of shape {shape} cannot be {kind.name}")
            tensors.append(Entry(name, shape, kind, data_start + offset, prod(shape) // block * n_bytes))
        if tensors:
            reader.check(max(t.start + t.size for t in tensors))
    return Header(path, metadata, tuple(tensors))


class _Reader:
    """Reads numbers and texts from a file, never past its end."""

    def __init__(self, file: BinaryIO, size: int, path: Path) -> None:
        self.file = file
        self.size = size
        self.path = path

    def check(self, end: int) -> None:
        """Check that the file has `end` bytes, before memory is reserved for them."""
        if end > self.size:
            raise BadFile(
                f"{self.path} is truncated: it has {self.size:,} bytes, but needs at least {end:,} by its header;"
                " fetch it again"
            )

    def take(self, n: int) -> bytes:
        """Read n bytes."""
        self.check(self.file.tell() + n)
        return self.file.read(n)

    def number(self, form: str) -> Any:
        """Read a number in a format of `struct`."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self) -> str:
        """Read a length and a text."""
        return self.take(self.number("<Q")).decode()

    def value(self, kind: int) -> Any:
        """Read a number or a text of this type; skip an array and return None."""
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.number(_FORMATS[kind])
        item_kind = self.number("<I")
        length = self.number("<Q")
        if item_kind in _FORMATS:
            n_bytes = length * struct.calcsize(_FORMATS[item_kind])
            self.check(self.file.tell() + n_bytes)
            self.file.seek(n_bytes, 1)
        else:
            for _ in range(length):
                self.value(item_kind)
        return None


# --- 2. the tokens at the start and the end of a text

# Byte-level vocabularies by the name of their pre-tokenizer. In these, a word that is a token is never split.
_WHOLE_WORDS = {
    "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano", "tekken",
}  # fmt: skip
# In these, texts begin with BOS: llama.cpp adds it (for those above and chameleon), or the hub's tokenizers do.
_BOS_VOCABULARIES = _WHOLE_WORDS | {
    "chameleon", "gemma4", "smaug-bpe", "llama4", "command-r", "deepseek-llm", "deepseek-coder", "deepseek-v3",
}  # fmt: skip


def opens_with_bos(metadata: dict[str, Any]) -> bool | None:
    """Return whether texts begin with BOS: by the file, or else by the kind of its vocabulary; None if unknown."""
    explicit = metadata.get("tokenizer.ggml.add_bos_token")
    kind = metadata.get("tokenizer.ggml.model")
    pre_tokenizer = metadata.get("tokenizer.ggml.pre", "default")
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    eos = metadata.get("tokenizer.ggml.eos_token_id")
    if explicit is not None:
        return bool(explicit)
    # SentencePiece: Llama 1 and 2, Mistral, Gemma
    if kind in ("llama", "gemma4"):
        return True
    if kind == "gpt2" and pre_tokenizer in _BOS_VOCABULARIES:
        return True
    # if one token is both BOS and EOS, as in GPT-2, texts do not begin with it
    if kind != "gpt2" or pre_tokenizer != "default" or bos is None or bos == eos:
        return False
    return None


def finish_tokenizer(header: Header, tokenizer: Any) -> None:
    """Set what transformers does not read from the file: BOS and EOS of texts, and words that are never split."""
    prefix = "tokenizer.ggml."
    settings = {k.removeprefix(prefix): v for k, v in header.metadata.items() if k.startswith(prefix)}
    bos = opens_with_bos(header.metadata)
    if bos and tokenizer.bos_token is None and settings.get("model") == "llama":
        # SentencePiece has BOS as token 1
        tokenizer.bos_token = tokenizer.convert_ids_to_tokens(1)
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
    """Set scaled rotary frequencies, which transformers does not read from the file.

    Llama 3's are recognised; others are left out, with a warning.
    """
    kind = header.metadata.get(f"{header.metadata['general.architecture']}.rope.scaling.type", "none")
    tables = [t for t in header.tensors if t.name.startswith("rope_")]
    rope = getattr(config, "rope_parameters", None) or {}
    unscaled = rope.get("rope_type") == "default"
    if unscaled and [t.name for t in tables] == ["rope_freqs.weight"]:
        factors = torch.from_numpy(_dequantise(header.path, tables[0])).double()
        scaling = LLAMA3_SCALING | {"factor": factors.max().item()}
        if torch.allclose(factors, _llama3_factors(rope["rope_theta"], len(factors), scaling), rtol=1e-3):
            config.rope_parameters = rope | {"rope_type": "llama3"} | scaling
            return
    if tables or (unscaled and kind != "none"):
        log.warning(
            "%s scales its rotary positions (%s), which is ignored: the model differs from the one that was trained",
            header.path,
            tables[0].name if tables else f"rope.scaling.type {kind}",
        )


def _llama3_factors(theta: float, n: int, scaling: dict[str, float]) -> Tensor:
    """Return the divisors of the n rotary frequencies in Llama 3.1 and 3.2.

    The divisor is 1 for a frequency with many turns within the original context, `factor` for one with less than one
    turn, and between them a mix of both.
    """
    frequency = theta ** (-torch.arange(n, dtype=torch.float64) / n)
    turns = scaling["original_max_position_embeddings"] * frequency / (2 * torch.pi)
    low = scaling["low_freq_factor"]
    high = scaling["high_freq_factor"]
    mix = ((turns - low) / (high - low)).clamp(0, 1)
    return 1 / ((1 - mix) / scaling["factor"] + mix)


def _tensors(header: Header, model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Yield the model's tensors under transformers' names, in the types in which they are stored.

    Raises:
        BadFile: a tensor is missing, unknown or damaged. Missing and unknown ones are found before the first is read.
    """
    architecture = header.metadata["general.architecture"]
    with _as_bad_file(header.path):
        processor = TENSOR_PROCESSORS.get(architecture, TensorProcessor)(config=model.config.to_dict())
        try:
            names = get_gguf_hf_weights_map(model, processor)
        except NotImplementedError:
            names = {}
    if not names:
        # one of the few architectures that transformers reads in another way, all tensors at once
        yield from _load_all(header, model.config)
        return
    targets = _targets(header, model, names)
    expected = {name: tensor.shape for name, tensor in model.state_dict().items()}
    # some tensors of the model are made of two in the file: the experts' gates and ups
    remaining = Counter(targets.values())
    parsed: dict[str, Any] = {"tensors": {}}
    for entry in _with_progress(header):
        target = targets.get(entry.name)
        if target is None:
            continue
        with _as_bad_file(header.path):
            array = _dequantise(header.path, entry)
            result = processor.process(
                weights=array, name=entry.name, tensor_key_mapping=names, parsed_parameters=parsed
            )
            if result.name is not None:
                parsed["tensors"][target] = torch.from_numpy(np.ascontiguousarray(result.weights))
        remaining[target] -= 1
        if not remaining[target]:
            tensor = parsed["tensors"].pop(target)
            if tensor.shape != expected[target]:
                check_complete(str(header.path), {"missing_keys": [], "mismatched_keys": [target]})
            yield target, tensor.to(FLOAT_TYPES.get(entry.kind, tensor.dtype))


def _targets(header: Header, model: PreTrainedModel, names: dict[str, str]) -> dict[str, str]:
    """Return, for each tensor of the file, the model's tensor that it is, or is part of; tied ones are left out."""
    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    expected = set(model.state_dict())
    targets = {}
    for entry in header.tensors:
        # experts are parameters, not modules: their names have no `.weight`
        expert = entry.name.removesuffix(".weight")
        target = names.get(entry.name) or names.get(expert) or {"output.weight": "lm_head.weight"}.get(entry.name, "")
        if target in expected:
            if target not in tied:
                targets[entry.name] = target
        elif not entry.name.startswith("rope_"):
            raise BadFile(f"{header.path} has a tensor {entry.name}, which is not one of a {type(model).__name__}")
    optional = re.compile("|".join(model._keys_to_ignore_on_load_missing or ["$^"]))
    missing = [n for n in expected - tied - set(targets.values()) if not optional.search(n)]
    check_complete(str(header.path), {"missing_keys": missing, "mismatched_keys": []})
    return targets


def _with_progress(header: Header) -> Iterator[Entry]:
    """Yield the tensors one by one, and show progress in pieces of equal size, so that the time left is right."""
    pieces = [(t, i == 0) for t in header.tensors for i in range(1 + prod(t.shape) // PIECE_NUMBERS)]
    for entry, is_first in default_progress.get()(pieces, f"dequantising {header.path.name}"):
        if is_first:
            yield entry


def _dequantise(path: Path, entry: Entry) -> np.ndarray:
    """Read a tensor of the file in float16 if that holds its precision and range, else in float32."""
    needs_float32 = entry.kind in (GGMLQuantizationType.F32, GGMLQuantizationType.BF16)
    array = np.empty((prod(entry.shape[:-1]), entry.shape[-1]), np.float32 if needs_float32 else np.float16)
    if not _fill(array, path, entry):
        array = array.astype(np.float32)
        _fill(array, path, entry)
    return array.reshape(entry.shape)


def _fill(array: np.ndarray, path: Path, entry: Entry) -> bool:
    """Dequantise into an array [row, column], in threads. Return False if a number is too large for its type."""
    block, block_bytes = GGML_QUANT_SIZES[entry.kind]
    row_bytes = entry.shape[-1] // block * block_bytes
    step = max(1, PIECE_NUMBERS // entry.shape[-1])
    limit = np.finfo(array.dtype).max

    def fill(first: int) -> bool:
        piece = array[first : first + step]
        raw = np.fromfile(path, np.uint8, row_bytes * len(piece), offset=entry.start + first * row_bytes)
        values = dequantize(raw.reshape(len(piece), row_bytes), entry.kind)
        largest = np.abs(values).max()
        # with NumPy, because torch would start more threads in every one of these
        if not np.isfinite(largest):
            check_finite(entry.name, torch.from_numpy(values), path)
        fits = bool(largest <= limit)
        if fits:
            piece[:] = values
        return fits

    with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
        return all(pool.map(fill, range(0, len(array), step)))


def _load_all(header: Header, config: PretrainedConfig) -> Iterator[tuple[str, Tensor]]:
    """Yield the model's tensors from transformers' loader, which needs memory for all of them in float32."""
    path = header.path
    is_quantised = any(t.kind not in FLOAT_TYPES for t in header.tensors)
    with _as_bad_file(path), quiet_transformers():
        model, info = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, local_files_only=True, dtype=torch.float32, output_loading_info=True
        )
    check_complete(str(path), info)
    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    for name, tensor in model.state_dict().items():
        if name not in tied:
            check_finite(name, tensor, path)
            # norms and biases are vectors, and never quantised
            fits = is_quantised and tensor.ndim > 1 and tensor.abs().max() <= torch.finfo(torch.float16).max
            yield name, tensor.to(torch.float16) if fits else tensor


def _save(tensors: Iterator[tuple[str, Tensor]], folder: Path) -> None:
    """Write tensors to safetensors files with an index, each file as soon as it is full."""
    files: dict[str, str] = {}
    shard: dict[str, Tensor] = {}
    total = 0

    def write() -> None:
        file = f"model-{len(set(files.values())) + 1:05d}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        files.update(dict.fromkeys(shard, file))
        shard.clear()

    for name, tensor in tensors:
        if shard and sum(t.nbytes for t in shard.values()) + tensor.nbytes > SHARD_BYTES:
            write()
        shard[name] = tensor.contiguous()
        total += tensor.nbytes
    write()
    index = {"metadata": {"total_size": total}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
