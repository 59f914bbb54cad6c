"""What a file of a foreign format declares: how to recognise it, read it and write it.

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
    """A file or folder whose format is not given."""

    path: Path

    def holds(self, name: str) -> bool:
        """Whether it is the file of this name, or a folder with such a file."""
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
        name: as `--format` and `--to` take it.
        read: the tables of a file or folder; None if it is only written.
        recognises: whether a file or folder without a given format is of this one. The first format that does is used.
        import_options: options of `import_scores` that only some formats take, and this one does.
        result_name: name of the imported result; without it, the file's name.
        write: the content of the file or folder to write; None if it is only read.
        export_options: options of `export` that only some formats take, and this one does.
        one_map: whether a written file holds one map. Others hold all of an atlas.
        ending: what the name of a written file must end in.
        is_folder: whether it is a folder instead of a file.
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
