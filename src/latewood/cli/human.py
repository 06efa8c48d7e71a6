"""Sizes, durations and times as people write them, both ways.  Pure.

Sizes follow the GNU tools: `64K` and `64KiB` count in 1024, `64KB` in 1000.  Times without a zone are UTC, which is
what every table shows.  Every reader raises ValueError with a text that says what would have been right.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from latewood.settings.units import UNITS_MS, parse_duration

_MS: Final = 1_000_000
_SECOND_MS: Final = 1000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PREFIXES: Final = "KMGTP"
_KIBI: Final = 1024


def parse_time(text: str, now_ns: int) -> int:
    """Return the nanoseconds since 1970 of an ISO time, of `2h` (that long ago), of `now`, or of plain nanoseconds.

    Raises:
        ValueError: it is none of these, or before 1970.
    """
    plain = text.strip()
    if plain == "now":
        return now_ns
    if plain.isascii() and plain.isdigit() and len(plain) > len("20260131"):
        return int(plain)
    try:
        return max(0, now_ns - parse_duration(plain) * _MS)
    except ValueError:
        return _parse_iso(plain)


def _parse_iso(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = f"{text!r} is not a time; write it as in 2026-01-31, 2026-01-31T12:00:00Z, or 2h for two hours ago"
        raise ValueError(message) from None
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    if since < timedelta(0):
        message = f"{text!r} is before 1970"
        raise ValueError(message)
    return since // timedelta(microseconds=1) * 1000


def format_size(size: int) -> str:
    """Return `512 B`, `1.5 KiB`, `64.0 MiB`."""
    if size < _KIBI:
        return f"{size} B"
    amount, unit = float(size), "B"
    for prefix in _PREFIXES:
        if amount < _KIBI:
            break
        amount, unit = amount / _KIBI, f"{prefix}iB"
    return f"{amount:.1f} {unit}"


def format_duration(duration_ms: float) -> str:
    """Return `0.4ms`, `12ms`, `3.2s`, or the two largest units, as in `2h5m`."""
    if duration_ms < _SECOND_MS:
        return f"{duration_ms:.3g}ms"
    if duration_ms < UNITS_MS["m"]:
        return f"{duration_ms / _SECOND_MS:.3g}s"
    rest, parts = int(duration_ms), list[str]()
    for unit, unit_ms in UNITS_MS.items():
        count, rest = divmod(rest, unit_ms)
        if count:
            parts.append(f"{count}{unit}")
        elif parts:
            break
    return "".join(parts[:2])


def format_time(time_ns: int) -> str:
    """Return the time in UTC, cut to milliseconds, so that reading from there on misses nothing."""
    moment = _EPOCH + timedelta(milliseconds=time_ns // _MS)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def cell(name: str, value: object) -> str:
    """Return a value as a table shows it; the unit at the end of its name decides."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(name, value)
    if isinstance(value, list):
        return ", ".join(printable(str(one)) for one in value) or "-"
    return printable(str(value))


def _number(name: str, value: float) -> str:
    if re.search(r"^bytes_|_bytes(_max)?$", name):
        return format_size(int(value))
    if name.endswith("_ns"):
        return format_time(int(value))
    return format_duration(value) if name.endswith("_ms") else str(value)


def heading(name: str) -> str:
    """Return a field's name as a table shows it: without the unit, which every cell has."""
    return re.sub(r"_(bytes|ns|ms)(_max)?$", r"\2", name).replace("_", " ")


def printable(text: str) -> str:
    """Return a text whose control characters are escaped, so that data cannot command the terminal."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
