"""The figures that papers print: one function each, from datasets to a matplotlib Figure."""

from headatlas.figures.agreement import agreement
from headatlas.figures.card import head_card
from headatlas.figures.categories import category_map
from headatlas.figures.comparison import comparison
from headatlas.figures.gates import always_any
from headatlas.figures.importance import importance_grid
from headatlas.figures.layers import layer_profile
from headatlas.figures.removal import removal_curves
from headatlas.figures.specialisation import specialisation
from headatlas.figures.tradeoff import trade_off

__all__ = [
    "agreement",
    "always_any",
    "category_map",
    "comparison",
    "head_card",
    "importance_grid",
    "layer_profile",
    "removal_curves",
    "specialisation",
    "trade_off",
]
