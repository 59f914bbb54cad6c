"""HeadAtlas tells what every attention head of a language model does. The public surface is what stands here."""

from headatlas.errors import HeadAtlasError
from headatlas.models.lm import LM
from headatlas.models.loading import load
from headatlas.models.weights import Weights

__all__ = ["LM", "HeadAtlasError", "Weights", "load"]
