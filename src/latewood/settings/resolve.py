"""What each setting is, and where that came from.  Pure: dicts in, values out.

An argument of the program counts before the environment, that before the file, that before the default.
"""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple

from latewood.errors import UsageError
from latewood.settings.fields import PREFIX, Field
from latewood.settings.units import parse_duration, parse_size

_SWITCHES: Final = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
DEFAULT: Final = "default"
ARGUMENT: Final = "argument"


class Resolved(NamedTuple):
    """One setting, its value, and where that came from."""

    field: Field
    value: object
    origin: str

    @property
    def is_default(self) -> bool:
        """Whether nobody set it."""
        return self.origin == DEFAULT


def resolve(
    fields: Iterable[Field],
    *,
    file: Mapping[str, object],
    file_name: str,
    environ: Mapping[str, str],
    chosen: Mapping[str, object] | None = None,
) -> dict[str, Resolved]:
    """Return every setting by its key, in the order of `fields`.

    `file` is a TOML document; `chosen` has what a program was called with, by key, None for what it was not.

    Raises:
        UsageError: a setting is not known, or its value is not of its kind; the text says where it is.
    """
    known = {field.key: field for field in fields}
    found = {key: Resolved(field, field.default, DEFAULT) for key, field in known.items() if not field.is_open}
    variable = _key_variable(file, environ)
    for layer in (
        _from_file(known, file, file_name),
        _from_environment(known, environ, ignored=variable),
        _from_arguments(known, chosen or {}),
    ):
        found.update((one.field.key, one) for one in layer)
    order = list(known)
    return dict(sorted(found.items(), key=lambda item: order.index(_known_key(known, item[0]))))


def field_at(known: Mapping[str, Field], key: str) -> Field | None:
    """Return the setting of a key, or None."""
    field = known.get(key)
    if field is not None:
        return None if field.is_open else field
    table, _, name = key.rpartition(".")
    parent = known.get(table)
    return parent.at(name) if parent is not None and parent.is_open and name else None


def _known_key(known: Mapping[str, Field], key: str) -> str:
    return key if key in known else key.rpartition(".")[0]


def _from_file(known: Mapping[str, Field], file: Mapping[str, object], file_name: str) -> Iterator[Resolved]:
    for key, value in _leaves(known, file, ""):
        field = field_at(known, key)
        if field is None:
            raise UsageError(f"{file_name}: {_unknown(known, key)}")
        yield Resolved(field, _of_kind(field, value, f"{file_name}: {key}"), file_name)


def _leaves(known: Mapping[str, Field], table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict) and _is_table(known, key):
            yield from _leaves(known, value, f"{key}.")
        else:
            yield key, value


def _is_table(known: Mapping[str, Field], key: str) -> bool:
    return any(one.startswith(f"{key}.") or (one == key and field.is_open) for one, field in known.items())


def _from_environment(
    known: Mapping[str, Field], environ: Mapping[str, str], *, ignored: str | None
) -> Iterator[Resolved]:
    by_variable = {field.variable: field for field in known.values()}
    sections = tuple(sorted({f"{PREFIX}{key.partition('.')[0].upper()}_" for key in known}))
    for name, text in environ.items():
        if not name.startswith(sections) or name == ignored:
            continue
        field = _field_of_variable(by_variable, name)
        if field is None:
            close = get_close_matches(name, by_variable, 1)
            hint = f"perhaps you meant {close[0]}" if close else "see `latewood config show`"
            raise UsageError(f"the environment variable {name} is no setting; {hint}")
        value = None if text == "" and field.is_optional else _parsed(field, text, f"the environment variable {name}")
        yield Resolved(field, value, f"environment: {name}")


def _field_of_variable(by_variable: Mapping[str, Field], name: str) -> Field | None:
    field = by_variable.get(name)
    if field is not None:
        return None if field.is_open else field
    table, _, last = name.rpartition("__")
    parent = by_variable.get(table)
    return parent.at(last.lower()) if parent is not None and parent.is_open and last else None


def _from_arguments(known: Mapping[str, Field], chosen: Mapping[str, object]) -> Iterator[Resolved]:
    for key, value in chosen.items():
        field = field_at(known, key)
        if field is None:
            raise UsageError(_unknown(known, key))
        if value is not None:
            yield Resolved(field, _of_kind(field, value, key), ARGUMENT)


def _of_kind(field: Field, value: object, where: str) -> object:
    """Return a value that a program or a file gave, or the number that a text with a unit stands for."""
    if isinstance(value, str) and field.kind != "text" and field.unit is not None:
        return _parsed(field, value, where)
    allowed = {"text": str, "switch": bool, "whole number": int, "number": int | float}[field.kind]
    if not isinstance(value, allowed) or (isinstance(value, bool) and field.kind != "switch"):
        shown = "something else" if field.is_secret else repr(value)
        raise UsageError(f"{where} must be a {field.kind}, not {shown}")
    return value


def _parsed(field: Field, text: str, where: str) -> object:
    """Return the value that a text stands for."""
    try:
        return _parse(field, text)
    except (KeyError, ValueError):
        unit = {"size": " such as 64MiB", "duration": " such as 30s", None: ""}[field.unit]
        shown = "something else" if field.is_secret else repr(text)
        raise UsageError(f"{where} must be a {field.kind}{unit}, not {shown}") from None


def _parse(field: Field, text: str) -> object:
    match field.kind:
        case "text":
            return text
        case "switch":
            return _SWITCHES[text.strip().lower()]
        case "number":
            return float(text)
    if field.unit is None or text.strip().isdigit():
        return int(text)
    return parse_size(text) if field.unit == "size" else parse_duration(text)


def _unknown(known: Mapping[str, Field], key: str) -> str:
    close = get_close_matches(key, known, 1)
    hint = f"; perhaps you meant {close[0]!r}" if close else ""
    section = key.rpartition(".")[0]
    siblings = [field.name for field in known.values() if field.key.rpartition(".")[0] == section]
    tables = list(dict.fromkeys(one.partition(".")[0] for one in known))
    valid = f"[{section}] has {', '.join(siblings)}" if siblings else f"there are {', '.join(f'[{t}]' for t in tables)}"
    return f"there is no setting {key!r}{hint}; {valid}"


def _key_variable(file: Mapping[str, object], environ: Mapping[str, str]) -> str | None:
    """Return the variable that has the keys: it may be called as it likes."""
    table = file.get("encryption")
    named = table.get("key_environment") if isinstance(table, dict) else None
    chosen = environ.get(f"{PREFIX}ENCRYPTION_KEY_ENVIRONMENT", named)
    return chosen if isinstance(chosen, str) else None
