"""Names of figures, formats, palettes and styles. Imports nothing, so that the command can check them at once."""

MODULES = {
    "importance": "importance",
    "categories": "categories",
    "always-any": "gates",
    "tests": "forest",
    "specialisation": "specialisation_matrix",
    "layers": "layers",
    "agreement": "agreement_matrix",
}
"""The figures of an atlas in order, and the module of each. It has REQUIRED (what its figure needs,
in words) and pictures(maps, charts), which finds the results that have it."""

FIGURES = tuple(MODULES)
FORMATS = ("png", "svg", "pdf")
PUBLISHED = "published"
MARKED = "marked"
PALETTES = (PUBLISHED, "colour-blind", "grey")
STYLES = (MARKED, PUBLISHED)
"""marked: with marks for heads at chance, tested heads and the outcome of the test. published: without marks."""
STYLED = ("importance", "categories", "always-any")
"""Figures that have both styles."""
