"""Kinds of jobs by name.  Pure.

The catalog stores a number; people and the command line use a name.  Numbers below 1024 are Latewood's own.
"""

from typing import Final

from latewood.catalog.tables import JobKind
from latewood.catalog.tables.job import KIND_MAX
from latewood.errors import UsageError

CATALOG_CHECK: Final = 16
"""Read every row of the catalog, and fail if one is not sound."""

CATALOG_PRUNE: Final = 17
"""Forget finished jobs, and changes that nobody waits for, as a policy says."""

_NAMES: Final = {
    **{int(kind): kind.name.lower() for kind in JobKind if kind < JobKind.CUSTOM},
    CATALOG_CHECK: "catalog-check",
    CATALOG_PRUNE: "catalog-prune",
}
_NUMBERS: Final = {name: kind for kind, name in _NAMES.items()}


def kind_name(kind: int) -> str:
    """Return what people call a kind; one that only a program knows is its number."""
    return _NAMES.get(kind, str(kind))


def kind_of(name: str) -> int:
    """Return the number of a kind, from its name or the number itself.

    Raises:
        UsageError: there is no such kind.
    """
    if name in _NUMBERS:
        return _NUMBERS[name]
    if name.isascii() and name.isdigit() and 0 < int(name) <= KIND_MAX:
        return int(name)
    message = f"there is no kind of job {name!r}; give a number up to {KIND_MAX:,}, or one of {', '.join(_NUMBERS)}"
    raise UsageError(message)
