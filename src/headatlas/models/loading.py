"""Load an `LM` from a name, a folder, a file or a transformers model."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from headatlas.errors import BadArgument, BadFile, CannotDo, FetchFailed, HeadAtlasError, did_you_mean, one_line
from headatlas.models.cache import cache_folder, cached_models
from headatlas.models.checkpoint_reader import check_finite
from headatlas.models.default_model import DEFAULT_MODEL, default_gguf
from headatlas.models.families import find_anatomy
from headatlas.models.fingerprint import hash_config
from headatlas.models.gguf import from_gguf
from headatlas.models.library_settings import quiet_transformers
from headatlas.models.lm import LM
from headatlas.models.memory import check_room, free_bytes, memory, skeleton
from headatlas.models.offloaded import check_complete, read_config
from headatlas.models.weights import Weights

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(
    model: str | Path | PreTrainedModel = DEFAULT_MODEL,
    device: str = "auto",
    dtype: str | torch.dtype = "auto",
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    device_map: Any = None,
    trust_remote_code: bool = False,
) -> LM:
    """Load a language model whose heads can be read and changed.

    Args:
        model: 'smollm2' (the default), a Hugging Face hub id, a model folder, a .gguf file (converted once,
            docs/how-to/own-model.md), or a transformers model, which is used without a copy, in eval mode.
        device: 'auto' (a GPU if there is one), 'cpu', 'cuda', 'cuda:1', ….
        dtype: 'auto' (that of the checkpoint on a GPU, float32 on a CPU), 'float32', 'bfloat16', 'float16' or
            'float64'.
        tokenizer: used in place of the model's tokenizer.
        device_map: spreads a model over several devices, as in transformers; `device` is then not used.
        trust_remote_code: run Python code that comes with the checkpoint (default: never).
    """
    if isinstance(model, PreTrainedModel):
        return LM(model.eval(), tokenizer, model.config.name_or_path or type(model).__name__)
    if not isinstance(model, str | Path):
        raise BadArgument(f"model is a {type(model).__name__}, expected a name, a path or a transformers model")
    place = check_device(device)
    precision = _check_dtype(dtype)
    if precision is None and place.type == "cpu" and device_map is None:
        # half precision is no faster on most CPUs, and often far slower
        precision = torch.float32
    source, name = _resolve(str(model))
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code, "local_files_only": isinstance(source, Path)}
    if isinstance(source, Path):
        # to recognise a damaged folder before minutes are spent
        read_config(source, trust_remote_code)
    if device_map is not None or place.type == "cuda":
        _check_room(source, name, options, precision, device_map, place)
    options |= {"dtype": precision or "auto", "device_map": device_map or {"": place}, "output_loading_info": True}
    transformer, info = _from_pretrained(AutoModelForCausalLM, source, name, options)
    check_complete(str(source), info)
    for parameter, tensor in transformer.named_parameters():
        check_finite(parameter, tensor, source)
    if tokenizer is None:
        tokenizer = _tokenizer(source, name, trust_remote_code)
    return LM(transformer.eval().requires_grad_(False), tokenizer, name)


def load_skeleton(
    model: str | Path = DEFAULT_MODEL, dtype: str = "auto", device: str = "auto"
) -> tuple[LM, torch.dtype]:
    """Return a model without its weights, for planning, and the precision in which `load` would load it."""
    place = check_device(device)
    precision = _check_dtype(dtype)
    source, name = _resolve(str(model))
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": isinstance(source, Path)}
    config = read_config(source) if isinstance(source, Path) else _from_pretrained(AutoConfig, source, name, options)
    if precision is None:
        precision = torch.float32 if place.type == "cpu" else getattr(config, "dtype", None) or torch.float32
    return LM(skeleton(config), _tokenizer(source, name), name), precision


def _tokenizer(source: Path | str, name: str, trust_remote_code: bool = False) -> PreTrainedTokenizerBase | None:
    """Return the model's tokenizer; None if its folder has none."""
    files = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
    if isinstance(source, Path) and not any((source / file).is_file() for file in files):
        return None
    options = {"trust_remote_code": trust_remote_code, "local_files_only": isinstance(source, Path)}
    return cast(PreTrainedTokenizerBase, _from_pretrained(AutoTokenizer, source, name, options))


def _check_room(
    source: Path | str,
    name: str,
    options: dict[str, Any],
    dtype: torch.dtype | None,
    device_map: Any,
    place: torch.device,
) -> None:
    """Check that a model fits before minutes are spent on loading it, unless the user has written a device map."""
    config = _from_pretrained(AutoConfig, source, name, options)
    is_spread = device_map == "auto" and torch.cuda.is_available()
    if getattr(config, "quantization_config", None) or (device_map is not None and not is_spread):
        return
    try:
        unloaded = skeleton(config, options["trust_remote_code"])
        n_layers = find_anatomy(unloaded).n_layers
    except (HeadAtlasError, RuntimeError, ValueError, TypeError, AttributeError, ImportError):
        # loading the model will raise the same error, or a better one
        return
    precision = dtype or getattr(config, "dtype", None) or torch.float32
    devices = range(torch.cuda.device_count()) if is_spread else [place.index or 0]
    check_room(name, memory(unloaded, n_layers, precision), precision, free_bytes(devices), len(devices))


def open_weights(
    model: LM | str | Path, trust_remote_code: bool = False
) -> tuple[Weights, PreTrainedTokenizerBase, str]:
    """Return (weights, tokenizer, name) of a model without loading it."""
    if isinstance(model, LM):
        return model.weights, model.tokenizer, model.name
    folder, name = find_folder(model)
    weights = Weights.from_disk(folder)
    options = {"trust_remote_code": trust_remote_code, "local_files_only": True}
    return weights, _from_pretrained(AutoTokenizer, folder, name, options), name


def find_folder(model: str | Path) -> tuple[Path, str]:
    """Return a model's folder, downloaded or converted from GGUF if it has to be, and the model's name."""
    source, name = _resolve(str(model))
    if not isinstance(source, Path):
        with _as_headatlas_errors(source, name):
            files = ["*.json", "*.safetensors", "tokenizer*", "*.model", "*.txt", "*.jinja", "LICENSE*"]
            source = Path(snapshot_download(source, allow_patterns=files))
    return source, name


def _from_pretrained(kind: Any, source: Path | str, name: str, options: dict[str, Any]) -> Any:
    with _as_headatlas_errors(source, name):
        return kind.from_pretrained(source, **options)


@contextmanager
def _as_headatlas_errors(source: Path | str, name: str) -> Iterator[None]:
    """Load quietly in the block, and raise errors of loaders as `HeadAtlasError`."""
    try:
        with quiet_transformers():
            yield
    # the loaders of 400 architectures have no common type of error
    except Exception as e:
        raise _headatlas_error(e, source, name) from e


def _headatlas_error(error: BaseException, source: Path | str, name: str) -> HeadAtlasError:
    """Return the `HeadAtlasError` for an error of a loader, which says what the user can do."""
    causes = [error]
    while cause := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(cause)
    choices = [DEFAULT_MODEL, *(p.name for p in cached_models())]
    # before the other cases: torch's message would advise the user to run the code
    if any("weights_only" in str(c) for c in causes):
        return BadFile(
            f"cannot load {source}: its weights are pickled with more than tensors, which could run code:"
            " use safetensors files"
        )
    if isinstance(source, Path):
        return BadFile(f"cannot load {source}: {one_line(error)}")
    if any(isinstance(c, RepositoryNotFoundError) for c in causes):
        return BadArgument(
            f"model {name!r} is neither a file, a folder, a hub model nor a known name ({', '.join(choices)})."
            + did_you_mean(name, choices)
        )
    if any(isinstance(c, LocalEntryNotFoundError) for c in causes):
        return FetchFailed(
            f"model {name!r} is not on this machine and the hub cannot be reached; available: {', '.join(choices)}."
            + did_you_mean(name, choices)
        )
    return CannotDo(f"cannot load {name!r} from the hub: {one_line(error)}")


def _resolve(spec: str) -> tuple[Path | str, str]:
    """Return (folder or hub id, name) of a model that is given as a name, a path or a hub id."""
    if not spec.strip():
        raise BadArgument(f"model is {spec!r}, expected a name, a path or a transformers model")
    try:
        path = Path(spec).expanduser()
    except RuntimeError as e:
        raise BadArgument(f"model {spec!r}: {one_line(e)}") from e
    _check_links(path, BadArgument)
    if spec == DEFAULT_MODEL:
        return from_gguf(default_gguf()), spec
    if path.suffix == ".gguf":
        if not path.is_file():
            raise BadArgument(f"model {spec!r}: {'a folder, not a file' if path.is_dir() else 'no such file'}")
        return from_gguf(path), path.stem
    if path.is_dir():
        for entry in (*path.glob("*.json"), *path.glob("*.safetensors")):
            _check_links(entry, BadFile)
        return path, path.resolve().name
    if path.exists():
        raise BadArgument(
            f"model {spec!r} is a file, but not a .gguf file: give a model folder, a .gguf file or a hub id"
        )
    cached = cache_folder() / "models" / spec
    if cached in cached_models():
        return cached, spec
    if not re.fullmatch(r"[\w][\w.-]*(/[\w][\w.-]*)?", spec):
        raise BadArgument(f"model {spec!r}: no such file or folder, and not a hub id (owner/name)")
    return spec, spec


def _check_links(path: Path, kind: type[HeadAtlasError]) -> None:
    """Check that a path is no broken symbolic link, which would look like a missing file."""
    try:
        path.stat()
    except (OSError, ValueError) as e:
        code = getattr(e, "errno", None)
        if code == errno.ELOOP:
            raise kind(f"{path} is a symbolic link that leads back to itself") from e
        if code == errno.ENOENT and path.is_symlink():
            raise kind(f"{path} is a symbolic link to {path.readlink()}, which does not exist") from e


def check_device(device: str) -> torch.device:
    """Return the device of this name, if this machine has it."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError) as e:
        raise BadArgument(f"device is {device!r}, expected 'auto', 'cpu', 'cuda' or 'cuda:N'") from e
    if place.type not in ("cpu", "cuda") and not (place.type == "mps" and torch.backends.mps.is_available()):
        raise BadArgument(
            f"device is {device!r}, which this machine does not have: use 'auto', 'cpu', 'cuda' or 'cuda:N'"
        )
    count = torch.cuda.device_count()
    if place.type == "cuda" and (place.index or 0) >= count:
        available = f"only {count} CUDA device{'s' * (count > 1)}" if count else "no CUDA device"
        raise BadArgument(f"device is {device!r}, but this machine has {available}: use 'auto' or 'cpu'")
    return place


def _check_dtype(dtype: str | torch.dtype) -> torch.dtype | None:
    """Return a precision by its name or as it is; None for 'auto'."""
    dtypes: dict[Any, torch.dtype] = DTYPES | {d: d for d in DTYPES.values()}
    if dtype != "auto" and dtype not in dtypes:
        raise BadArgument(f"dtype is {dtype!r}, expected 'auto', {', '.join(map(repr, DTYPES))}")
    return dtypes.get(dtype)


@dataclass(frozen=True)
class Parameters:
    """A model that is not loaded: its weights are read from disk, tensor by tensor. An `LM` has the same attributes."""

    weights: Weights
    tokenizer: PreTrainedTokenizerBase
    name: str
    device: torch.device

    def config_hash(self) -> str:
        """Return a short hash of the configuration, the tokenizer and the chat template."""
        return hash_config(self.weights.config, self.tokenizer)


def open_parameters(model: str | Path, device: str = "auto") -> Parameters:
    """Open a model's weights on disk, without loading it."""
    # first, because opening may download the model
    place = check_device(device)
    return Parameters(*open_weights(model), place)
