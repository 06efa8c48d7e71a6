"""What a user may set on the sink: parsed, checked, and refused with the list of what there is.  Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from latewood.errors import UsageError

LOCK_TIMEOUT_MS: Final = 60_000
"""Other commits take milliseconds; a program that has the log open for good is told of after a minute."""

STAGING_AGE_MAX_MS: Final = 7 * 24 * 3_600_000
"""A job that runs longer than this must say so, or its first tasks' files may be taken for left behind."""

_BATCH: Final = ("txnId", "lockTimeout", "stagingMaxAge")
_STREAM: Final = ("lockTimeout", "stagingMaxAge")
_SPARKS: Final = ("path", "checkpointLocation", "queryName")
"""What Spark itself puts among the options, or its users do for it."""

_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TXN_CHARS_MAX: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where to write, and how."""

    path: str
    txn_id: str | None = None
    """A batch write that names one is appended once, however often it is run."""

    lock_timeout_ms: int = LOCK_TIMEOUT_MS
    """How long a commit waits for another writer of the log."""

    staging_age_max_ms: int = STAGING_AGE_MAX_MS
    """Staged files of nobody go when they are this old."""


def parse_write_options(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Return what was set.

    Raises:
        UsageError: an option is unknown, or its value is not understood; the text lists the valid ones.
    """
    valid = _STREAM if streaming else _BATCH
    names = {name.lower(): name for name in valid + _SPARKS}
    unknown = [option for option in given if option.lower() not in names]
    if unknown:
        kind = "streaming" if streaming else "batch"
        raise UsageError(f"{unknown[0]!r} is no option of a {kind} write; the options are {', '.join(valid)}")
    values = {names[option.lower()]: str(value) for option, value in given.items()}
    if not values.get("path"):
        raise UsageError("there is no path: name a log or a database, as in save('events') or start('lake/clicks')")
    return WriteOptions(
        path=values["path"],
        txn_id=_txn_id(values.get("txnId")),
        lock_timeout_ms=_duration(values, "lockTimeout", LOCK_TIMEOUT_MS),
        staging_age_max_ms=_duration(values, "stagingMaxAge", STAGING_AGE_MAX_MS),
    )


def _txn_id(text: str | None) -> str | None:
    if text is not None and not 0 < len(text) <= _TXN_CHARS_MAX:
        raise UsageError(f"txnId must have 1 to {_TXN_CHARS_MAX} characters, not {len(text)}")
    return text


def _duration(values: Mapping[str, str], name: str, default: int) -> int:
    text = values.get(name)
    if text is None:
        return default
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"{name} must be a time such as 500ms, 30s, 5m, 2h or 7d, not {text!r}")
    return int(match[1]) * _UNITS_MS[match[2]]
