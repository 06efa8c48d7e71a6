"""Rows of the catalog as values that JSON knows, with the names of their fields."""

from pathlib import Path
from typing import Any

import msgspec

from latewood.catalog.tables import TABLES, Table
from latewood.errors import NotFoundError


def table_named(name: str) -> Table[Any, Any]:
    """Return a table.

    Raises:
        NotFoundError: there is none of that name.
    """
    for table in TABLES:
        if table.name == name:
            return table
    message = f"a catalog has no table {name!r}; it has {', '.join(table.name for table in TABLES)}"
    raise NotFoundError(message)


def plain_key(key: object) -> object:
    """Return a key with the names of its parts."""
    return key._asdict() if hasattr(key, "_asdict") else key


def plain_raw_key(table_name: str, raw: bytes, path: Path) -> object:
    """Return a packed key with the names of its parts."""
    return plain_key(table_named(table_name).unpack_key(raw, path))


def plain(value: object) -> object:
    """Return a record as a dict, with those within it; of several shapes, `is` tells which one it is."""
    match value:
        case msgspec.Struct():
            shape = {} if type(value).__struct_config__.tag is None else {"is": type(value).__name__}
            return shape | {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        case bytes():
            return value.hex()
        case dict():
            return {str(name): plain(one) for name, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
        case _:
            return value
