"""Sizes and durations as people write them.  Pure."""

import re
from typing import Final

_PREFIXES: Final = "KMGTP"
_KIBI: Final = 1024
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?) ?([kKMGTP]?)(i?B)?", re.ASCII)
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+", re.ASCII)
_DURATION_PART: Final = re.compile(r"([\d.]+)(ms|s|m|h|d|w)", re.ASCII)
UNITS_MS: Final = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


def parse_size(text: str) -> int:
    """Return the bytes in `4096`, `64KiB`, `64K`, `1.5MB`.

    Raises:
        ValueError: it is none of these.
    """
    match = _SIZE.fullmatch(text.strip())
    if not match or (match[3] == "iB" and not match[2]):
        message = f"{text!r} is not a size; write bytes, or a unit as in 512KiB, 64MiB, 1.5GB"
        raise ValueError(message)
    base = 1000 if match[3] == "B" and match[2] else _KIBI
    power = _PREFIXES.index(match[2].upper()) + 1 if match[2] else 0
    return int(float(match[1]) * base**power) if "." in match[1] else int(match[1]) * base**power


def parse_duration(text: str) -> int:
    """Return the milliseconds in `250ms`, `30s`, `1h30m`, `7d`.

    Raises:
        ValueError: it is none of these.
    """
    plain = text.strip().lower().replace(" ", "")
    if not _DURATION.fullmatch(plain):
        message = f"{text!r} is not a duration; write a number and a unit, as in 250ms, 30s, 1h30m, 7d"
        raise ValueError(message)
    return round(sum(float(number) * UNITS_MS[unit] for number, unit in _DURATION_PART.findall(plain)))
