"""What the registered methods measure, by the name that results carry."""

from headatlas.methods import methods
from headatlas.methods.method import Measure


def measures_of(method: str) -> tuple[Measure, ...]:
    """What a method says of heads, the most telling first; nothing, if there is no such method here."""
    known = methods().get(method)
    return () if known is None else known.measures


def title_of(method: str) -> str:
    """A method's name for people."""
    known = methods().get(method)
    return method if known is None else known.title
