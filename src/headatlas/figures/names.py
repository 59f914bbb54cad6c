"""What can be chosen when figures are drawn. It imports nothing, so that the command checks names at once."""

FIGURES = (
    "importance",
    "categories",
    "always-any",
    "removal",
    "trade-off",
    "specialisation",
    "comparison",
    "layers",
    "agreement",
)
FORMATS = ("png", "svg", "pdf")
PUBLISHED = "published"
PALETTES = (PUBLISHED, "colour-blind", "grey")
