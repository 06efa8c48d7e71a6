"""Which keys a configuration may have: one that it may not have is told with those that were perhaps meant.  Pure."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, get_args

import msgspec

from latewood.errors import UsageError


class _Key(NamedTuple):
    table: str
    """Empty: in front of all tables."""
    name: str

    def __str__(self) -> str:
        return f"{self.name} in [{self.table}]" if self.table else self.name


def check_keys(given: Mapping[str, Any], kind: type[msgspec.Struct]) -> None:
    """Refuse keys that are not fields of `kind`, nor of the structs that are its tables.

    Raises:
        UsageError: there is one; the text has what was perhaps meant, and then all that could be there.
    """
    known = list(_known(kind))
    tables = {key.table for key in known}
    for name, value in given.items():
        _check(_Key("", name), known)
        for inner in value if name in tables and isinstance(value, Mapping) else ():
            _check(_Key(name, inner), known)


def _known(kind: type[msgspec.Struct]) -> Iterator[_Key]:
    for field in msgspec.structs.fields(kind):
        yield _Key("", field.name)
        for part in get_args(field.type) or (field.type,):  # Of `T | None`: T.
            if isinstance(part, type) and issubclass(part, msgspec.Struct):
                yield from (_Key(field.name, inner.name) for inner in msgspec.structs.fields(part))


def _check(key: _Key, known: list[_Key]) -> None:
    if key in known:
        return
    here = [one.name for one in known if one.table == key.table]
    nearest = _nearest(key, known, here)
    hint = f"; perhaps you meant {nearest}" if nearest else ""
    where, whose = (f" in [{key.table}]", f"[{key.table}] has") if key.table else ("", "there are")
    raise UsageError(f"there is no key {key.name!r}{where}{hint}; {whose} {', '.join(here)}")


def _nearest(key: _Key, known: list[_Key], here: list[str]) -> _Key | None:
    """Return what was perhaps meant: the same in another table, else what is spelt like it, first in its own."""
    same = [one for one in known if one.name == key.name]
    close = [_Key(key.table, name) for name in get_close_matches(key.name, here, 1)]
    names = get_close_matches(key.name, [one.name for one in known], 1)
    return next(iter([*same, *close, *(one for one in known if one.name in names)]), None)
