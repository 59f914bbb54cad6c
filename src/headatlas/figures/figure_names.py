"""What can be chosen when figures are drawn. It imports nothing, so that the command checks names at once."""

MODULES = {
    "importance": "importance",
    "categories": "categories",
    "always-any": "gates",
    "removal": "removal",
    "trade-off": "tradeoff",
    "specialisation": "specialisation_matrix",
    "comparison": "map_comparison",
    "layers": "layers",
    "agreement": "agreement_matrix",
}
"""The figures that are drawn of an atlas, in their order, and the module of each. It has NEEDS (what its figure needs,
in words) and pictures(maps, charts), which finds the results that have it."""

FIGURES = tuple(MODULES)
FORMATS = ("png", "svg", "pdf")
PUBLISHED, MARKED = "published", "marked"
PALETTES = (PUBLISHED, "colour-blind", "grey")
STYLES = (MARKED, PUBLISHED)
"""Figures after published ones have their maps only, or also marks: heads at chance, heads removed, the outcome."""
STYLED = ("importance", "categories", "always-any")
"""The figures that have both styles."""
