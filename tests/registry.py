"""The registry of methods, which looks for other packages' methods once in a process."""

from headatlas import methods


def find_methods_again() -> None:
    """Forget the methods that were found, so that the next call looks for them."""
    methods.methods.cache_clear()
    methods._plug_ins.cache_clear()
