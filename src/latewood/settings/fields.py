"""Which settings there are: those of the options classes, and a few of the store itself.  Pure.

A setting's key is dotted, as in `jobs.backoff.first_ms`; `Field.variable` is its name in the environment.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

Kind = Literal["text", "switch", "whole number", "number"]
PREFIX: Final = "LATEWOOD_"
_KINDS: Final[dict[type, Kind]] = {str: "text", bool: "switch", int: "whole number", float: "number"}
_SIZE: Final = re.compile(r"(^|_)bytes(_max)?$")
_DURATION: Final = re.compile(r"(^|_)ms(_max)?$")
_HARMLESS: Final = re.compile(r"endpoint|region|bucket|virtual_hosted|skip_signature")
"""Whatever else is handed to the client of an object store may be a secret."""


class Field(NamedTuple):
    """One setting."""

    key: str
    kind: Kind
    is_optional: bool
    """Whether it may be nothing."""
    default: object
    is_open: bool = False
    """Whether it stands for any name behind its key: `archive.settings`."""

    @property
    def name(self) -> str:
        """The last part of its key."""
        return self.key.rpartition(".")[2]

    @property
    def variable(self) -> str:
        """Its name in the environment: `LATEWOOD_JOBS_LEASE_MS`, `LATEWOOD_JOBS_BACKOFF__FIRST_MS`."""
        section, *rest = self.key.split(".")
        return f"{PREFIX}{section}_{'__'.join(rest)}".upper()

    @property
    def unit(self) -> Literal["size", "duration"] | None:
        """What a text with a unit would be."""
        if _SIZE.search(self.name):
            return "size"
        return "duration" if _DURATION.search(self.name) else None

    @property
    def is_secret(self) -> bool:
        """Whether its value must not be shown."""
        return self.key.startswith("archive.settings.") and not _HARMLESS.search(self.name)

    def at(self, name: str) -> "Field":
        """Return what an open field is for one name."""
        return Field(f"{self.key}.{name}", self.kind, self.is_optional, None)


def fields_of(section: str, options: type) -> Iterator[Field]:
    """Yield the settings of an options class, those of the classes within it too."""
    hints = get_type_hints(options)
    for field in dataclasses.fields(options):
        key, hint = f"{section}.{field.name}", hints[field.name]
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            yield from fields_of(key, hint)
        elif get_origin(hint) is Mapping:
            yield Field(key, "text", is_optional=False, default=None, is_open=True)
        else:
            kind, is_optional = _kind_of(hint)
            yield Field(key, kind, is_optional, _default_of(field))


def _kind_of(hint: Any) -> tuple[Kind, bool]:
    if not isinstance(hint, UnionType):
        return _KINDS[hint], False
    (inner,) = (one for one in get_args(hint) if one is not NoneType)
    return _KINDS[inner], True


def _default_of(field: "dataclasses.Field[Any]") -> object:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
