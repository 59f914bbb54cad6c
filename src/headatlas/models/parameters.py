"""A model's parameters and tokenizer, without the model: for methods that run no text."""

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase

from headatlas.models.fingerprint import hash_config
from headatlas.models.loading import check_device, open_weights
from headatlas.models.weights import Weights


@dataclass(frozen=True)
class Parameters:
    """Weights that are read from disk tensor by tensor. An `LM` has the same attributes."""

    weights: Weights
    tokenizer: PreTrainedTokenizerBase
    name: str
    device: torch.device

    def config_hash(self) -> str:
        """A short hash of the configuration, the tokenizer and the chat template."""
        return hash_config(self.weights.config, self.tokenizer)


def open_parameters(model: str | Path, device: str = "auto") -> Parameters:
    place = check_device(device)  # first: it takes no time
    return Parameters(*open_weights(model), place)
