"""The figures that papers print: one function each, from datasets to a matplotlib Figure.

They are imported when first used: matplotlib takes a second, and the command only needs `names` to check its options.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headatlas.figures.agreement_matrix import agreement
    from headatlas.figures.card import head_card
    from headatlas.figures.categories import category_map
    from headatlas.figures.gates import always_any
    from headatlas.figures.importance import importance_grid
    from headatlas.figures.layers import layer_profile
    from headatlas.figures.map_comparison import comparison
    from headatlas.figures.removal import removal_curves
    from headatlas.figures.specialisation_matrix import specialisation
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

_HOME = {
    "agreement": "agreement_matrix",
    "always_any": "gates",
    "category_map": "categories",
    "comparison": "map_comparison",
    "head_card": "card",
    "importance_grid": "importance",
    "layer_profile": "layers",
    "removal_curves": "removal",
    "specialisation": "specialisation_matrix",
    "trade_off": "tradeoff",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'headatlas.figures' has no attribute {name!r}")
    return getattr(import_module(f"headatlas.figures.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
