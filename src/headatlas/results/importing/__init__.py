"""Scores of any origin as head maps, so that other people's tables can be drawn and compared.

What can be chosen is listed here, without slow imports; `scores.import_scores` reads a file.
"""

METHODS = {"importance": "probe", "categories": "maps", "gate": "gate"}  # whose file each kind becomes
KINDS = tuple(METHODS)
FORMATS = (
    "retrieval-head",
    "headkv",
    "duo-attention",
    "ranked",
    "layers-by-heads",
    "minference",
    "maps",
    "headvis",
    "csv",
    "json",
    "parquet",
    "npy",
)
