"""Offsets as options and checkpoints write them: where each shard begins or ends.  Pure.

Of a log or a database: `{"0": 12, "1": 7}`; of a store: `{"clicks": {"0": 12}}`.  As in Spark's Kafka source, -2 is the
earliest and -1 the latest.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

from latewood.errors import UsageError
from latewood.limits import TIMESTAMP_NS_MAX

EARLIEST: Final = -2
LATEST: Final = -1
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_NS_IN_MS: Final = 1_000_000
_NS_IN_US: Final = 1_000


class ShardId(NamedTuple):
    """One log of what is read; `database` is empty where there is only a log."""

    database: str
    number: int

    def __str__(self) -> str:
        return f"shard {self.number} of {self.database!r}" if self.database else f"shard {self.number}"


Offsets: TypeAlias = dict[ShardId, int]
"""A sequence of each shard."""


class Bound(NamedTuple):
    """Where to begin, or to end: everywhere the same end of the log, a time, or a sequence for each shard."""

    everywhere: int | None = None
    """EARLIEST or LATEST."""
    timestamp_ns: int | None = None
    each: tuple[tuple[str, int, int], ...] = ()
    """Database (empty: the only one), shard and sequence, EARLIEST or LATEST."""

    def of(self, shard: ShardId) -> int | None:
        """Return what is said about a shard: a sequence, EARLIEST or LATEST; None: nothing."""
        for database, number, sequence in self.each:
            if number == shard.number and database in ("", shard.database):
                return sequence
        return self.everywhere


def parse_offsets(text: str, option: str) -> Bound:
    """Return the bound that an option names.

    Raises:
        UsageError: it is neither a word nor JSON of the form.
    """
    word = text.strip().lower()
    if word in _WORDS:
        return Bound(everywhere=_WORDS[word])
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _bad_offsets(option, text)
    each: list[tuple[str, int, int]] = []
    for name, value in found.items():
        inner, database = (value, name) if isinstance(value, dict) else ({name: value}, "")
        each += [(database, _whole(shard, option, text), _offset(at, option, text)) for shard, at in inner.items()]
    return Bound(each=tuple(each))


def parse_timestamp(text: str, option: str) -> Bound:
    """Return the bound that a time is: ISO 8601, in UTC if it names no zone, or milliseconds since 1970.

    Raises:
        UsageError: it is neither.
    """
    plain = text.strip()
    if plain.isdigit():
        nanoseconds = int(plain) * _NS_IN_MS
    else:
        try:
            moment = datetime.fromisoformat(plain)
        except ValueError:
            message = f"{option} must be a time such as 2026-11-15T12:00:00Z, or milliseconds since 1970, not {text!r}"
            raise UsageError(message) from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        nanoseconds = (since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds) * _NS_IN_US
    return Bound(timestamp_ns=min(max(nanoseconds, 0), TIMESTAMP_NS_MAX))


def encode_offsets(offsets: Mapping[ShardId, int]) -> dict[str, Any]:
    """Return offsets as a checkpoint stores them."""
    plain: dict[str, Any] = {}
    for shard in sorted(offsets):
        inner = plain.setdefault(shard.database, {}) if shard.database else plain
        inner[str(shard.number)] = offsets[shard]
    return plain


def decode_offsets(stored: Mapping[str, Any]) -> Offsets:
    """Return what a checkpoint stored.

    Raises:
        UsageError: another source wrote it.
    """
    offsets: Offsets = {}
    try:
        for name, value in stored.items():
            inner, database = (value, name) if isinstance(value, dict) else ({name: value}, "")
            offsets |= {ShardId(database, int(shard)): int(sequence) for shard, sequence in inner.items()}
    except (TypeError, ValueError):
        raise UsageError(f"the checkpoint's offsets are not those of a latewood source: {stored!r}") from None
    return offsets


def unknown_shards(bound: Bound, shards: Iterable[ShardId]) -> list[str]:
    """Return the shards that a bound names and that are not there."""
    known = list(shards)
    return [
        str(ShardId(database, number))
        for database, number, _ in bound.each
        if not any(number == shard.number and database in ("", shard.database) for shard in known)
    ]


def _offset(value: object, option: str, text: str) -> int:
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    if isinstance(value, int) and not isinstance(value, bool) and value >= EARLIEST:
        return value
    raise _bad_offsets(option, text)


def _whole(name: str, option: str, text: str) -> int:
    if not name.isdigit():
        raise _bad_offsets(option, text)
    return int(name)


def _bad_offsets(option: str, text: str) -> UsageError:
    return UsageError(
        f'{option} must be earliest, latest, or JSON such as {{"0": 12, "1": "latest"}}, of a store '
        f'{{"clicks": {{"0": 12}}}}, not {text!r}'
    )
