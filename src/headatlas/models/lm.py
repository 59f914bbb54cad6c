"""A language model with its attention heads in reach."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import signature
from itertools import takewhile
from numbers import Integral
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headatlas.errors import BadArgument, UnsupportedModel
from headatlas.models.families import find_anatomy, parameter
from headatlas.models.fingerprint import hash_config
from headatlas.models.head_names import Head
from headatlas.models.hooks import (
    Edit,
    Positions,
    check_gate,
    check_positions,
    edit_outputs,
    gate_edit,
    head_mask,
    hooked,
    patch_edit,
)
from headatlas.models.library_settings import without_cudnn_attention
from headatlas.models.token_text import text_inside
from headatlas.models.weights import Weights

Text = str | Sequence[int]
"""A text, or its token ids."""


@dataclass
class State:
    """Facts about a model that are learned by running it, shared by all LMs of that model.

    Attributes:
        lock: held while more of the model is changed than its hooks.
        edit_batches: batch sizes for which the edits in force were made.
        packing_trials: of each trial, the width of packed rows, the longest text, whether texts shared a beginning, and
            whether the result was right.
        batch_divisor: the number of tokens at once is divided by this; doubled whenever memory runs out.
        tokens_that_fit: number of tokens that fit at once on the model's GPUs; None if not computed yet.
        plain_norms: by path, whether a norm is x / √(mean x² + ε) · weight, as far as tried.
    """

    lock: threading.RLock = field(default_factory=threading.RLock)
    edit_batches: list[int] = field(default_factory=list)
    packing_trials: list[tuple[int, int, bool, bool]] = field(default_factory=list)
    batch_divisor: int = 1
    tokens_that_fit: int | None = None
    plain_norms: dict[str, bool] = field(default_factory=dict)


# Kept here and not on the model, which is the user's and may be copied, pickled or shared.
_states: WeakKeyDictionary[nn.Module, State] = WeakKeyDictionary()


class LM:
    """A causal language model whose heads can be read, scaled, removed and replaced; made by `headatlas.load`.

    Attributes:
        model: the transformers model itself.
        name: the model's name in results.
        anatomy: where its heads, projections and embeddings are.
        weights: the matrices of every head.
        state: facts learned by running the model, such as how many tokens fit; shared by all LMs of the same model.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, name: str) -> None:
        self.model = model
        self.name = name
        self._tokenizer = tokenizer
        self.anatomy = find_anatomy(model)
        self.weights = Weights.from_model(model, self.anatomy)
        self.state = _states.setdefault(model, State())

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer; an error for a model without one, which takes token ids only."""
        if self._tokenizer is None:
            raise BadArgument(
                f"model {self.name!r} has no tokenizer: pass tokenizer=… to load, or give token ids instead of text"
            )
        return self._tokenizer

    @property
    def n_layers(self) -> int:
        """Number of layers, those without heads included."""
        return self.anatomy.n_layers

    @property
    def n_heads(self) -> int:
        """Number of query heads of a layer."""
        return self.anatomy.n_heads

    @property
    def n_kv_heads(self) -> int:
        """Number of key-value heads of a layer; query heads share them."""
        return self.anatomy.n_kv_heads

    @property
    def d_head(self) -> int:
        """Size of a head's output z."""
        return self.anatomy.d_head

    @property
    def d_model(self) -> int:
        """Size of the residual stream."""
        return self.anatomy.d_model

    @property
    def layers_with_heads(self) -> list[int]:
        """Numbers of the layers that have attention heads: all layers, except in hybrid models."""
        return self.anatomy.layers_with_heads

    @property
    def layers_without_heads(self) -> list[int]:
        """Linear-attention and state-space layers of hybrid models; every head map is NaN there."""
        return self.anatomy.layers_without_heads

    @property
    def device(self) -> torch.device:
        """The device of the embedding, and so of inputs."""
        return parameter(self.model.get_input_embeddings(), "weight").device

    def __repr__(self) -> str:
        shape = f"{self.n_layers} layers × {self.n_heads} heads ({self.n_kv_heads} KV), d_head {self.d_head}"
        return f"LM({self.name!r}: {shape}, {str(self.model.dtype).removeprefix('torch.')} on {self.device})"

    def fingerprint(self) -> str:
        """Return a short hash of the weights as they are in memory, precision included. Any change changes it."""
        return self.weights.fingerprint()

    def config_hash(self) -> str:
        """Return a short hash of what else decides the outputs: configuration, tokenizer and chat template."""
        return hash_config(self.model.config, self._tokenizer)

    @property
    def _edit_batches(self) -> list[int]:
        """Batch sizes for which the edits in force were made."""
        return self.state.edit_batches

    # --- texts and batches

    def encode(self, texts: Text | Sequence[Text]) -> list[list[int]]:
        """Return the token ids of each text, checked: at least one text, none empty, none longer than the context."""
        listed: Any = texts.tolist() if hasattr(texts, "tolist") else texts if isinstance(texts, str) else list(texts)
        listed = [listed] if _is_text(listed) else listed
        if not listed:
            raise BadArgument("texts is empty: give at least one text")
        ids = [text_ids(self.tokenizer, t) if isinstance(t, str) else [int(i) for i in t] for t in listed]
        vocabulary = self.model.get_input_embeddings().num_embeddings
        for i, tokens in enumerate(ids):
            if not tokens:
                raise BadArgument(f"texts[{i}] is {listed[i]!r}: it has no tokens")
            if self.anatomy.context and len(tokens) > self.anatomy.context:
                raise BadArgument(
                    f"texts[{i}] is {len(tokens)} tokens long, but the model's context is {self.anatomy.context}"
                )
            if not 0 <= min(tokens) <= max(tokens) < vocabulary:
                raise BadArgument(
                    f"texts[{i}] has token ids from {min(tokens)} to {max(tokens)},"
                    f" but the vocabulary is 0 to {vocabulary - 1}"
                )
        return ids

    def batch(self, texts: Text | Sequence[Text], side: Literal["left", "right"] = "left") -> dict[str, Tensor]:
        """Return padded model inputs, for `lm.model(**lm.batch(texts))`.

        Positions follow the mask, so padding does not change what the model computes.
        """
        return self.pad(self.encode(texts), side)

    def pad(self, ids: Sequence[Sequence[int]], side: str) -> dict[str, Tensor]:
        """Return padded model inputs from token ids, which are not checked (`batch` does)."""
        if side not in ("left", "right"):
            raise BadArgument(f"side is {side!r}, expected 'left' or 'right'")
        width = max(map(len, ids))
        # padding is masked, so it may be any token
        tokens = torch.zeros((len(ids), width), dtype=torch.long)
        mask = torch.zeros((len(ids), width), dtype=torch.long)
        for row, text in enumerate(ids):
            place = slice(width - len(text), width) if side == "left" else slice(0, len(text))
            tokens[row, place] = torch.tensor(text)
            mask[row, place] = 1
        inputs = {"input_ids": tokens, "attention_mask": mask}
        if "position_ids" in signature(self.model.forward).parameters:
            inputs["position_ids"] = (mask.cumsum(dim=1) - 1).clamp(min=0)
        return {k: v.to(self.device) for k, v in inputs.items()}

    # --- reading heads

    @torch.no_grad()
    def head_outputs(
        self,
        texts: Text | Sequence[Text],
        positions: Positions | Sequence[Sequence[int]] = "all",
        *,
        batch_size: int = 32,
        side: Literal["left", "right"] = "right",
        device: str | torch.device = "cpu",
    ) -> Tensor:
        """Return z of every head: [example, token, layer, head, d_head], in the model's precision.

        Tokens past a text's end and layers without heads have NaN.

        Args:
            positions: 'all' tokens; the 'last' one; a list of token numbers for every text; or one list per text.
                Padding does not count; negative numbers count from a text's end.
            batch_size: number of texts that run at once.
            side: on which texts are padded.
            device: on which the result is stored.
        """
        ids = self.encode(texts)
        positions_by_text = _token_numbers(positions, [len(i) for i in ids])
        width = max(map(len, positions_by_text))
        z = torch.empty(
            (len(ids), width, self.n_layers, self.n_heads, self.d_head), dtype=self.model.dtype, device=device
        )
        for rows in self._batches(ids, batch_size):
            inputs = self.pad([ids[r] for r in rows], side)
            length = inputs["input_ids"].shape[1]
            # for each place of the result, the place in the padded batch
            places = torch.full((len(rows), width), -1)
            for i, r in enumerate(rows):
                shift = length - len(ids[r]) if side == "left" else 0
                places[i, : len(positions_by_text[r])] = torch.tensor(positions_by_text[r]) + shift
            z[rows] = self._capture(inputs, places).to(z.device)
        return z

    def _capture(self, inputs: dict[str, Tensor], places: Tensor) -> Tensor:
        """Run one batch and return z at these places: [row, place, layer, head, d_head].

        Args:
            places: places in the batch [row, place]; −1 for none.
        """
        rows, width = places.shape
        out = torch.empty(
            (rows, width, self.n_layers, self.n_heads, self.d_head), dtype=self.model.dtype, device=self.device
        )
        index = (torch.arange(rows)[:, None], places.clamp(min=0))
        # the first tokens in order are a slice, which is faster than an index
        is_slice = bool(((places == torch.arange(width)) | (places < 0)).all())
        ran = set()

        def read(layer: int, z: Tensor) -> None:
            selected = z[:, :width] if is_slice else z[index]
            out[:, : selected.shape[1], layer] = selected.to(out.device)
            ran.add(layer)

        with hooked(self.model, self.anatomy, read), without_cudnn_attention():
            # without the LM head: no logits are needed
            self.model.base_model(**inputs, use_cache=False)
        idle = set(range(self.n_layers)) - ran - set(self.layers_without_heads)
        if idle:
            raise UnsupportedModel(
                f"the attention of layer {min(idle)} did not run on plain text: its heads cannot be read"
            )
        out[(places < 0).to(out.device)] = torch.nan
        out[:, :, self.layers_without_heads] = torch.nan
        return out

    def _batches(self, ids: list[list[int]], batch_size: int) -> list[list[int]]:
        """Return the rows of each batch, texts of similar length together.

        While an edit for a batch is in force, there is one batch, with its rows in order.
        """
        if batch_size < 1:
            raise BadArgument(f"batch_size is {batch_size}, expected at least 1")
        if self._edit_batches:
            if len(ids) != self._edit_batches[-1]:
                raise BadArgument(
                    f"{len(ids)} texts, but the gate or patch in force is for a batch of {self._edit_batches[-1]}"
                )
            return [list(range(len(ids)))]
        order = sorted(range(len(ids)), key=lambda r: len(ids[r]))
        return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]

    # --- changing heads

    @contextmanager
    def gated(self, gate: Any, positions: Positions = "all") -> Iterator[None]:
        """Scale every head's output while the block runs; 1 leaves a head unchanged, 0 removes it.

        Works for forward passes and for `generate` (with its KV cache), and is differentiable in the gate.

        Args:
            gate: [layer, head] or [batch, layer, head].
            positions: 'all' tokens, the 'last' one, or a list of token numbers. In `generate`, 'last' means the
                prompt's last token, then each new token.
        """
        gate = check_gate(gate, self.anatomy)
        positions = check_positions(positions)
        with self._editing(gate_edit(gate, positions), positions != "all", len(gate) if gate.ndim == 3 else None):
            yield

    @contextmanager
    def patched(
        self,
        heads: Head | Iterable[Head] | Tensor,
        value: float | Tensor = 0.0,
        *,
        add: bool = False,
        positions: Positions = "all",
    ) -> Iterator[None]:
        """Replace the output of heads, or add to it, while the block runs.

        Args:
            heads: 'L12.H5', (12, 5), several of these, or a bool mask [layer, head].
            value: a number or [d_head] vector for all of these heads; [layer, head, d_head], such as a mean; or z of
                another run from `head_outputs`, [example, token, layer, head, d_head], which is used token by token.
                NaN leaves a head's output unchanged.
            add: add the value to the output instead.
            positions: 'all' tokens, the 'last' one, or a list of token numbers.
        """
        mask = head_mask(heads, self.anatomy)
        positions = check_positions(positions)
        value = torch.as_tensor(value)
        shape = (self.n_layers, self.n_heads, self.d_head)
        if tuple(value.shape) not in ((), shape[2:], shape, (*value.shape[:2], *shape)):
            raise BadArgument(
                f"value has shape {tuple(value.shape)}, expected a number, [d_head], [layer, head, d_head] or"
                f" [example, token, layer, head, d_head] with layer, head, d_head = {shape}"
            )
        batch = len(value) if value.ndim == 5 and len(value) > 1 else None
        with self._editing(patch_edit(mask, value, add, positions), positions != "all" or value.ndim == 5, batch):
            yield

    @contextmanager
    def _editing(self, edit: Edit, needs_index: bool, batch: int | None) -> Iterator[None]:
        with edit_outputs(self.model, self.anatomy, edit, needs_index):
            if batch is not None:
                self._edit_batches.append(batch)
            try:
                yield
            finally:
                if batch is not None:
                    self._edit_batches.pop()

    # --- writing text

    def generate(self, prompts: Text | Sequence[Text], max_new_tokens: int = 64, **options: Any) -> Any:
        """Continue each prompt, and return the new text: one text for one prompt, a list for a list.

        Without a tokenizer, token ids are returned.

        Args:
            max_new_tokens: maximum number of tokens to generate.
            options: options of transformers' `generate`; by default, generation is greedy.
        """
        new: list[Any] = self.generate_ids(prompts, max_new_tokens, **options)
        if self._tokenizer is not None:
            new = [text_inside(self._tokenizer, row, skip_special_tokens=True) for row in new]
        return new[0] if _is_text(prompts) and len(new) == 1 else new

    @torch.no_grad()
    def generate_ids(self, prompts: Text | Sequence[Text], max_new_tokens: int = 64, **options: Any) -> list[list[int]]:
        """Continue each prompt as `generate` does, and return the new token ids, without the token that ends a text."""
        ids = self.encode(prompts)
        longest = max(map(len, ids))
        if max_new_tokens < 1:
            raise BadArgument(f"max_new_tokens is {max_new_tokens}, expected at least 1")
        if self._edit_batches and len(ids) != self._edit_batches[-1]:
            raise BadArgument(
                f"{len(ids)} prompts, but the gate or patch in force is for a batch of {self._edit_batches[-1]}"
            )
        context = self.anatomy.context
        if context and longest + max_new_tokens > context:
            raise BadArgument(
                f"a prompt of {longest} tokens and max_new_tokens={max_new_tokens} exceed the context of {context}"
            )
        inputs = self.pad(ids, "left")
        # generate makes them from the mask, longer for every new token
        inputs.pop("position_ids", None)
        ends = options.get("eos_token_id", self.model.generation_config.eos_token_id)
        ends = {ends} if isinstance(ends, int) else set(ends or ())
        options = {"do_sample": False, "pad_token_id": min(ends, default=0)} | options
        if not options["do_sample"]:
            # otherwise transformers warns that the model's sampling settings are not used
            options = {"temperature": None, "top_p": None, "top_k": None} | options
        with _whole_rows(self.model.get_output_embeddings()), without_cudnn_attention():
            tokens = self.model.generate(**inputs, max_new_tokens=max_new_tokens, **options)[:, longest:].tolist()
        return [list(takewhile(lambda t: t not in ends, row)) for row in tokens]


@contextmanager
def _whole_rows(unembedding: nn.Module) -> Iterator[None]:
    """Make the unembedding's input contiguous while the block runs.

    The prompts' last tokens are a slice, for which PyTorch computes one product per row; on a CPU in bfloat16 it copies
    the matrix for each of them: 15 GB for 32 prompts of Qwen2.5-1.5B.
    """
    handle = unembedding.register_forward_pre_hook(lambda _, args: (args[0].contiguous(), *args[1:]))
    try:
        yield
    finally:
        handle.remove()


def text_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Return the token ids of a text, with the special tokens that the tokenizer adds.

    A text that already begins with BOS, as chat templates write it, gets no second one.
    """
    ids: list[int] = tokenizer(text)["input_ids"]
    bos = getattr(tokenizer, "bos_token_id", None)
    if bos is None or ids[:2] != [bos, bos]:
        return ids
    # the tokenizer has added the first BOS only if the text by itself begins at the second
    text_only = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids[1:] if text_only[0] == bos and ids[1 : 1 + len(text_only)] == text_only else ids


def _is_text(texts: Any) -> bool:
    """Return whether this is one text, not several: a string, or a flat list of token ids."""
    return isinstance(texts, str) or (len(texts) > 0 and isinstance(texts[0], Integral))


def _token_numbers(positions: Any, lengths: list[int]) -> list[list[int]]:
    """Return the token numbers that positions mean in each text, none of them negative."""
    positions = positions.tolist() if hasattr(positions, "tolist") else positions
    if not isinstance(positions, str) and len(positions) and not isinstance(positions[0], Integral):
        if len(positions) != len(lengths):
            raise BadArgument(f"positions has {len(positions)} lists for {len(lengths)} texts")
        per_text = [check_positions(p) for p in positions]
    else:
        per_text = [check_positions(positions)] * len(lengths)
    result = []
    for i, (checked, length) in enumerate(zip(per_text, lengths, strict=True)):
        numbers = list(range(length)) if checked == "all" else [-1] if checked == "last" else list(checked)
        for p in numbers:
            if not -length <= p < length:
                raise BadArgument(f"positions includes token {p} of texts[{i}], which has {length} tokens")
        result.append([p % length for p in numbers])
    return result
