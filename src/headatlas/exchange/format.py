"""The record of a foreign format: how to recognise it, read it and write it.

Each format has a file with a `Format` record at its end; `exchange/__init__.py` lists the records. The `headatlas`
command imports them when it starts, so these files import numpy and xarray inside functions only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headatlas.exchange.checked_tables import ImportOptions, Tables
    from headatlas.exchange.export_request import ExportRequest, Files


@dataclass(frozen=True)
class Source:
    """A file or folder whose format is to be guessed."""

    path: Path

    def holds(self, name: str) -> bool:
        """Return whether this is a file of this name, or a folder with one."""
        return self.path.name == name or (self.path / name).is_file()

    @cached_property
    def columns(self) -> set[str] | None:
        """Columns of a CSV file; None for any other."""
        from headatlas.exchange.head_rows import read_csv

        return set(read_csv(self.path)[0]) if self._ends_in(".csv") else None

    @cached_property
    def json(self) -> Any:
        """Content of a JSON file; None for any other."""
        from headatlas.exchange.checked_tables import read_json

        return read_json(self.path) if self._ends_in(".json") else None

    def _ends_in(self, suffix: str) -> bool:
        return not self.path.is_dir() and self.path.suffix.lower() == suffix


@dataclass(frozen=True)
class Format:
    """A foreign format.

    Attributes:
        name: the value of `--format` and `--to`.
        read: the tables of a file or folder; None if it is only written.
        recognises: returns whether a file or folder has this format. The first format that recognises it is used.
        import_options: which of the format-specific options of `import_scores` it takes.
        result_name: name of the imported result (default: the file's name).
        write: the content of the file or folder to write; None if it is only read.
        export_options: which of the format-specific options of `export` it takes.
        one_map: whether a written file holds only one map, not all maps of an atlas.
        ending: the suffix that a written file must have.
        is_folder: whether the format is a folder instead of a file.
    """

    name: str
    read: Callable[[Path, ImportOptions], Tables] | None = None
    recognises: Callable[[Source], bool] | None = None
    import_options: tuple[str, ...] = ()
    result_name: str = ""
    write: Callable[[ExportRequest], Files] | None = None
    export_options: tuple[str, ...] = ()
    one_map: bool = False
    ending: str = ""
    is_folder: bool = False
