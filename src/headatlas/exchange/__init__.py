"""Read and write the head maps of other tools and papers: one file per foreign format.

`importing.import_scores` reads and `exporting.export` writes; a new format is a new file and an entry here.
"""

from headatlas.exchange import (
    duo_attention,
    headkv,
    headvis,
    layers_by_heads,
    long_table,
    maps_repository,
    minference,
    npy_array,
    ranked,
    retrieval_head,
)
from headatlas.exchange.format import Format

FORMATS: tuple[Format, ...] = (
    retrieval_head.FORMAT,
    headkv.FORMAT,
    duo_attention.FORMAT,
    headvis.FORMAT,
    ranked.FORMAT,
    layers_by_heads.FORMAT,
    minference.FORMAT,
    maps_repository.FORMAT,
    long_table.CSV,
    long_table.JSON,
    long_table.PARQUET,
    npy_array.FORMAT,
)
"""All formats. If several recognise a file, the first of them reads it."""


def import_formats() -> dict[str, Format]:
    """Return the formats that `import_scores` reads, by name."""
    return {format.name: format for format in FORMATS if format.read}


def export_formats() -> dict[str, Format]:
    """Return the formats that `export` writes, by name."""
    return {format.name: format for format in FORMATS if format.write}
