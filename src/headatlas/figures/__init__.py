"""Figures for papers: one function each, from datasets to a matplotlib Figure.

They are imported on first use: matplotlib takes a second to import, and checking options only needs `figure_names`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headatlas.figures.agreement_matrix import agreed as agreed
    from headatlas.figures.agreement_matrix import agreement as agreement
    from headatlas.figures.categories import category_map as category_map
    from headatlas.figures.forest import forest_plot as forest_plot
    from headatlas.figures.gates import always_any as always_any
    from headatlas.figures.head_summary import head_card as head_card
    from headatlas.figures.importance import importance_grid as importance_grid
    from headatlas.figures.layers import layer_profile as layer_profile
    from headatlas.figures.specialisation_matrix import specialisation as specialisation

_MODULES = {
    "agreed": "agreement_matrix",
    "agreement": "agreement_matrix",
    "always_any": "gates",
    "category_map": "categories",
    "forest_plot": "forest",
    "head_card": "head_summary",
    "importance_grid": "importance",
    "layer_profile": "layers",
    "specialisation": "specialisation_matrix",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'headatlas.figures' has no attribute {name!r}")
    return getattr(import_module(f"headatlas.figures.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
