"""Checkpoints too large to load: their first block and embeddings alone, or one block in memory at a time."""

import copy
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from accelerate.hooks import remove_hook_from_module
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from headatlas.errors import BadFile, UnsupportedModel, one_line
from headatlas.models.checkpoint_reader import check_finite
from headatlas.models.families import Anatomy
from headatlas.models.library_settings import quiet_transformers


def read_config(folder: Path, trust_remote_code: bool = False) -> Any:
    """Read the configuration in a model folder."""
    if not (folder / "config.json").is_file():
        raise BadFile(f"{folder} has no config.json: a model folder holds config.json and safetensors files")
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trust_remote_code)
    # configuration classes have no common type of error
    except Exception as e:
        kind = UnsupportedModel if "does not recognize" in str(e) or "custom code" in str(e) else BadFile
        raise kind(f"{folder / 'config.json'} cannot be read as a model configuration: {one_line(e)}") from e


def check_complete(spec: str, info: dict[str, Any]) -> None:
    """Raise `BadFile` if tensors are missing or of another shape: transformers would fill in random numbers.

    Args:
        spec: the model, for the error.
        info: what transformers returns as loading info.
    """
    missing = sorted(info["missing_keys"])
    mismatched = sorted(str(k) for k in info["mismatched_keys"])
    if missing:
        raise BadFile(f"{spec} lacks {len(missing)} of the model's tensors, the first is {missing[0]}")
    if mismatched:
        raise BadFile(
            f"{spec} has {len(mismatched)} tensors of another shape than its config.json says,"
            f" the first is {mismatched[0]}"
        )


def load_front(folder: Path, config: Any, dtype: Any = "auto") -> PreTrainedModel:
    """Load the embeddings, block 0 and the LM head, with transformers' loader on a configuration of one layer."""
    shallow = copy.deepcopy(config)
    text = shallow.get_text_config()
    depth = text.num_hidden_layers
    for key, value in vars(text).items():
        # lists with one entry per layer, such as layer_types
        if isinstance(value, list) and len(value) == depth:
            setattr(text, key, value[:1])
    text.num_hidden_layers = 1
    model = _load(folder, "embeddings and first block", config=shallow, dtype=dtype)
    for name, tensor in model.named_parameters():
        check_finite(name, tensor, folder)
    return model


def load_in_blocks(
    folder: Path, config: Any, skeleton: PreTrainedModel, anatomy: Anatomy, device: torch.device | str
) -> PreTrainedModel:
    """Return a model that runs with one of its blocks in memory at a time; each is read when its turn comes.

    Embedding and LM head stay on disk: the caller sets the rows of E that are needed.
    """
    places = dict(_device_map(skeleton, anatomy.blocks, str(torch.device(device))))
    ends = [skeleton.get_input_embeddings(), skeleton.get_output_embeddings()]
    places |= {name: "disk" for name, module in skeleton.named_modules() if any(module is end for end in ends)}
    stored = getattr(config.get_text_config(), "dtype", None) or torch.float32
    with ExitStack() as stack:
        # transformers writes tensors there that are stored in another shape than it needs (experts)
        offload_folder = stack.enter_context(tempfile.TemporaryDirectory())
        dtype = torch.promote_types(stored, torch.float32)
        model = _load(folder, "blocks", dtype=dtype, device_map=places, offload_folder=offload_folder)
        remove_hook_from_module(model.get_input_embeddings())
        # these files are read as long as the model exists
        weakref.finalize(model, stack.pop_all().close)
    return model


def _load(folder: Path, content: str, **options: Any) -> PreTrainedModel:
    """Load a model from safetensors files with transformers' loader, and check that it is complete.

    Args:
        content: what is read, for the error.
    """
    try:
        with quiet_transformers():
            model, info = AutoModelForCausalLM.from_pretrained(
                folder,
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
                experts_implementation="eager",  # the one that takes every precision
                **options,
            )
    # the loaders of 400 architectures have no common type of error for a damaged file
    except Exception as e:
        raise BadFile(f"{folder}: cannot read its {content}: {one_line(e)}") from e
    check_complete(str(folder), info)
    return model.eval().requires_grad_(False)


def _device_map(module: nn.Module, blocks: str, device: str, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield a device map as (path, device): each block on disk, everything else on `device`."""
    for name, child in module.named_children():
        child_path = f"{path}{name}"
        if child_path == blocks:
            yield from ((f"{child_path}.{i}", "disk") for i, _ in child.named_children())
        elif blocks.startswith(f"{child_path}."):
            yield from _device_map(child, blocks, device, f"{child_path}.")
        else:
            yield child_path, device
