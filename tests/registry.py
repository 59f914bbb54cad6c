"""The registry of methods, which looks for other packages' methods once in a process."""

from headatlas import methods
from headatlas.cli import plug_ins


def find_methods_again() -> None:
    """Forget the methods and commands that were found, so that the next call looks for them."""
    methods.methods.cache_clear()
    methods._plug_ins.cache_clear()
    plug_ins.command_entries.cache_clear()
    plug_ins.load_command.cache_clear()
    plug_ins.warn_name_taken.cache_clear()
