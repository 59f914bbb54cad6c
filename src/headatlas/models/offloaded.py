"""Checkpoints too large to load: their ends and first block alone, or a model with one block in memory at a time."""

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
    if not (folder / "config.json").is_file():
        raise BadFile(f"{folder} has no config.json: a model folder holds config.json and safetensors files")
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trust_remote_code)
    except Exception as e:  # as many ways to fail as there are configuration classes
        kind = UnsupportedModel if "does not recognize" in str(e) or "custom code" in str(e) else BadFile
        raise kind(f"{folder / 'config.json'} cannot be read as a model configuration: {one_line(e)}") from e


def check_complete(spec: str, info: dict[str, Any]) -> None:
    """Refuse what transformers would fill in with random numbers."""
    missing, mismatched = sorted(info["missing_keys"]), sorted(str(k) for k in info["mismatched_keys"])
    if missing:
        raise BadFile(f"{spec} lacks {len(missing)} of the model's tensors, the first is {missing[0]}")
    if mismatched:
        raise BadFile(
            f"{spec} has {len(mismatched)} tensors of another shape than its config.json says,"
            f" the first is {mismatched[0]}"
        )


def load_front(folder: Path, config: Any, dtype: Any = "auto") -> PreTrainedModel:
    """The embeddings, block 0 and the LM head, by transformers' own loader on a configuration of one layer."""
    shallow = copy.deepcopy(config)
    text = shallow.get_text_config()
    depth = text.num_hidden_layers
    for key, value in vars(text).items():
        if isinstance(value, list) and len(value) == depth:  # one entry per layer, such as layer_types
            setattr(text, key, value[:1])
    text.num_hidden_layers = 1
    model = _load(folder, "embeddings and first block", config=shallow, dtype=dtype)
    for name, tensor in model.named_parameters():
        check_finite(name, tensor, folder)
    return model


def load_in_blocks(
    folder: Path, config: Any, skeleton: PreTrainedModel, anatomy: Anatomy, device: torch.device | str
) -> PreTrainedModel:
    """A model that runs with one of its blocks in memory at a time; each is read when its turn comes.

    Embedding and LM head stay on disk: whoever runs it sets the rows of E that are needed.
    """
    places = dict(_placed(skeleton, anatomy.blocks, str(torch.device(device))))
    ends = [skeleton.get_input_embeddings(), skeleton.get_output_embeddings()]
    places |= {name: "disk" for name, module in skeleton.named_modules() if any(module is end for end in ends)}
    stored = getattr(config.get_text_config(), "dtype", None) or torch.float32
    with ExitStack() as stack:
        # transformers writes tensors aside that are stored in another shape than it needs (experts)
        aside = stack.enter_context(tempfile.TemporaryDirectory())
        dtype = torch.promote_types(stored, torch.float32)
        model = _load(folder, "blocks", dtype=dtype, device_map=places, offload_folder=aside)
        remove_hook_from_module(model.get_input_embeddings())
        weakref.finalize(model, stack.pop_all().close)  # they are needed as long as the model
    return model


def _load(folder: Path, what: str, **options: Any) -> PreTrainedModel:
    """A model by transformers' own loader, from safetensors files, checked to be complete. what: is read, in words."""
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
    except Exception as e:  # loaders of 400 architectures raise what they like about a damaged file
        raise BadFile(f"{folder}: cannot read its {what}: {one_line(e)}") from e
    check_complete(str(folder), info)
    return model.eval().requires_grad_(False)


def _placed(module: nn.Module, blocks: str, device: str, path: str = "") -> Iterator[tuple[str, str]]:
    """Each block on disk, everything else on `device`, by path."""
    for name, child in module.named_children():
        at = f"{path}{name}"
        if at == blocks:
            yield from ((f"{at}.{i}", "disk") for i, _ in child.named_children())
        elif blocks.startswith(f"{at}."):
            yield from _placed(child, blocks, device, f"{at}.")
        else:
            yield at, device
