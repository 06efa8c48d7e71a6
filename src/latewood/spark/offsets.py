"""Offsets as options and checkpoints write them: where each shard begins or ends.  Pure.

In an option, of a log: `{"0": 12, "1": 7}`; of a store: `{"clicks": {"0": 12}}`.  As in Spark's Kafka source, -2 is the
earliest and -1 the latest.

In a checkpoint a sequence comes with the mark of the log that it is of.  Of a log
`{"version": 2, "shards": {"0": {"sequence": 12, "log": "5f0c…", "life": "90ab…"}}}`, of a store or a database of it
`{"version": 2, "databases": {"clicks": {"0": {…}}}}`.  Older programs stored what an option has.
Format: docs/format/spark.md
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from latewood.errors import UnsupportedVersion, UsageError
from latewood.format.identity import Mark
from latewood.format.mark import mark_texts, parse_mark
from latewood.limits import TIMESTAMP_NS_MAX, U64_MAX

VERSION: Final = 2
"""Of what a checkpoint stores."""
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

Marks: TypeAlias = dict[ShardId, Mark | None]
"""The log that a sequence of each shard is of; None: none was stored."""


class StoredOffsets(NamedTuple):
    """What a checkpoint says, or is to say."""

    sequences: Offsets
    marks: Marks
    """Of the same shards; one that is not in it has no mark."""

    def mark(self, shard: ShardId) -> Mark | None:
        """Return the log that a shard's sequence is of, if that was stored."""
        return self.marks.get(shard)


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


def encode_offsets(stored: StoredOffsets) -> dict[str, Any]:
    """Return offsets as a checkpoint stores them, always in the same order: Spark compares the texts."""
    shards: dict[str, Any] = {}
    databases: dict[str, Any] = {}
    for shard in sorted(stored.sequences):
        inner = databases.setdefault(shard.database, {}) if shard.database else shards
        log, life = mark_texts(stored.mark(shard))
        inner[str(shard.number)] = {"sequence": stored.sequences[shard]} | ({"log": log, "life": life} if log else {})
    return {"version": VERSION} | ({"shards": shards} if shards else {"databases": databases})


def decode_offsets(stored: Mapping[str, Any]) -> StoredOffsets:
    """Return what a checkpoint stored, whichever version of this program wrote it.

    Raises:
        UsageError: another source wrote it.
        UnsupportedVersion: a later program wrote it.
    """
    version = stored.get("version")  # Of version 1, a database that is called so, or nothing.
    try:
        if isinstance(version, int) and not isinstance(version, bool):
            if version != VERSION:
                raise UnsupportedVersion("offsets", version, Path("the checkpoint"))
            return _decode_marked(stored)
        return StoredOffsets(_decode_plain(stored), {})
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UsageError(f"the checkpoint's offsets are not those of a latewood source: {stored!r}") from None


def _decode_marked(stored: Mapping[str, Any]) -> StoredOffsets:
    found = StoredOffsets({}, {})
    databases = {"": stored["shards"]} if "shards" in stored else stored["databases"]
    for database, shards in databases.items():
        for number, one in shards.items():
            shard = ShardId(database, _stored_number(number))
            found.sequences[shard] = _stored_sequence(one["sequence"])
            found.marks[shard] = parse_mark(one.get("log"), one.get("life"))
    return found


def _decode_plain(stored: Mapping[str, Any]) -> Offsets:
    offsets: Offsets = {}
    for name, value in stored.items():
        inner, database = (value, name) if isinstance(value, dict) else ({name: value}, "")
        offsets |= {
            ShardId(database, _stored_number(shard)): _stored_sequence(sequence) for shard, sequence in inner.items()
        }
    return offsets


def _stored_number(text: str) -> int:
    """Return a shard's number; ValueError if it is not as it is written."""
    number = int(text)
    if str(number) != text or number < 0:
        raise ValueError(text)
    return number


def _stored_sequence(value: object) -> int:
    """Return a sequence; ValueError if it is none: what is read as another number would skip records."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= U64_MAX:
        raise ValueError(value)
    return value


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
