"""What a user may set on the source: parsed, checked, and refused with the list of what there is.  Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, NamedTuple

from latewood.errors import UsageError
from latewood.limits import KiB, check_reader_name
from latewood.spark.offsets import EARLIEST, LATEST, Bound, parse_offsets, parse_timestamp
from latewood.spark.place import local_path

VIEWS: Final = ("records", "segments", "chunks", "readers", "jobs", "shards", "plan")

BATCH: Final = (
    "path",
    "view",
    "columns",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "asOfGeneration",
    "failOnDataLoss",
    "minPartitions",
    "targetPartitionBytes",
    "ranges",
    "archiveUrl",
    "keyFile",
    "keyEnvironment",
)
STREAM: Final = (
    "path",
    "columns",
    "startingOffsets",
    "startingTimestamp",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "reader",
    "minPartitions",
    "targetPartitionBytes",
    "archiveUrl",
    "keyFile",
    "keyEnvironment",
)
_SIZE: Final = re.compile(r"(\d+)\s*([kmg]?)(i?b)?", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3}
_SWITCHES: Final = {"true": True, "false": False}
_FROM_THE_EARLIEST: Final = Bound(everywhere=EARLIEST)
_TO_THE_LATEST: Final = Bound(everywhere=LATEST)


class Range(NamedTuple):
    """Records that a query is pinned to, `start` to `stop`."""

    database: str
    shard: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What is to be read, and how."""

    path: str
    """A log, a database of a store (`lake/clicks`), or a store; absolute, so that it stays what it was."""

    view: str = "records"
    """Which table: records, or one of the views on what holds them."""

    columns: tuple[str, ...] | None = None
    """Only these, in this order."""

    starting: Bound = _FROM_THE_EARLIEST
    ending: Bound = _TO_THE_LATEST
    has_start: bool = False
    """Whether somebody chose where to begin."""

    as_of_generation: int | None = None
    """End where the catalog's chunks ended at this generation."""

    fail_on_data_loss: bool = True
    """Fail where records that were asked for are gone; else go on behind them."""

    partitions_min: int = 1
    partition_bytes: int | None = None
    """About so much goes into one task, at most; None: a share for each core, within bounds."""

    ranges: tuple[Range, ...] | None = None
    """Exactly these records: how `table` pins the part that Spark does not read itself."""

    records_max: int | None = None
    """Of one micro-batch."""

    bytes_max: int | None = None
    """Of one micro-batch, about."""

    reader: str | None = None
    """The named reader that the query is."""

    archive_url: str | None = None
    key_file: str | None = None
    key_environment: str | None = None
    """Where archived chunks and their keys are, if not where the store's settings say."""


def parse_options(given: Mapping[str, str], *, streaming: bool | None = None) -> ReadOptions:
    """Return what was set; `streaming` is None while Spark has not said which.

    Raises:
        UsageError: an option is unknown, does not apply, or its value is not understood; the text lists the valid ones.
    """
    values = _named(given, streaming=streaming)
    if not values.get("path"):
        raise UsageError('there is no path: load("events"), load("lake/clicks") or load("lake")')
    view = values.get("view", "records").lower()
    if view not in VIEWS:
        raise UsageError(f"there is no view {values['view']!r}; the views are {', '.join(VIEWS)}")
    return ReadOptions(
        path=str(local_path(values["path"])),
        view=view,
        columns=_columns(values.get("columns")),
        starting=_bound(values, "starting") or _FROM_THE_EARLIEST,
        ending=_bound(values, "ending") or _TO_THE_LATEST,
        has_start="startingOffsets" in values or "startingTimestamp" in values,
        as_of_generation=_number(values, "asOfGeneration", 0),
        fail_on_data_loss=_switch(values, "failOnDataLoss", default=True),
        partitions_min=_number(values, "minPartitions", 1) or 1,
        partition_bytes=_size(values, "targetPartitionBytes"),
        ranges=_ranges(values.get("ranges")),
        records_max=_number(values, "maxOffsetsPerTrigger", 1),
        bytes_max=_size(values, "maxBytesPerTrigger"),
        reader=check_reader_name(values["reader"]) if values.get("reader") else None,
        archive_url=values.get("archiveUrl"),
        key_file=values.get("keyFile"),
        key_environment=values.get("keyEnvironment"),
    )


def encode_ranges(ranges: list[Range]) -> str:
    """Return ranges as the option `ranges` has them."""
    return json.dumps([list(one) for one in ranges])


def _named(given: Mapping[str, str], *, streaming: bool | None) -> dict[str, str]:
    """Return the options by the names that we give them: Spark hands them over in lower case."""
    valid = dict.fromkeys(BATCH + STREAM) if streaming is None else dict.fromkeys(STREAM if streaming else BATCH)
    names = {name.lower(): name for name in valid}
    _check_kinds({option.lower() for option in given})
    every = {name.lower(): name for name in BATCH + STREAM}
    for option in given:
        if option.lower() not in names:
            raise UsageError(_refusal(option, every, list(valid), streaming=streaming))
    return {names[option.lower()]: str(value) for option, value in given.items()}


def _check_kinds(given: set[str]) -> None:
    """Refuse what can be neither a batch nor a stream: the only thing to be known before Spark says which it is."""
    batch_only = [name for name in BATCH if name not in STREAM and name.lower() in given]
    stream_only = [name for name in STREAM if name not in BATCH and name.lower() in given]
    if batch_only and stream_only:
        raise UsageError(
            f"{batch_only[0]} is of a batch read and {stream_only[0]} of a streaming read: give one of them"
        )


def _refusal(option: str, every: Mapping[str, str], valid: list[str], *, streaming: bool | None) -> str:
    shown = [name for name in valid if name not in ("path", "ranges")]
    if option.lower() in every:
        kind = "a streaming read" if streaming else "a batch read"
        return f"{every[option.lower()]} is no option of {kind}; these are {', '.join(shown)}"
    close = get_close_matches(option.lower(), list(every), 1)
    hint = f", perhaps you meant {every[close[0]]}" if close else ""
    return f"there is no option {option!r}{hint}; the options are {', '.join(shown)}"


def _bound(values: Mapping[str, str], which: str) -> Bound | None:
    offsets, timestamp = f"{which}Offsets", f"{which}Timestamp"
    if offsets in values and timestamp in values:
        raise UsageError(f"give {offsets} or {timestamp}, not both")
    if timestamp in values:
        return parse_timestamp(values[timestamp], timestamp)
    return parse_offsets(values[offsets], offsets) if offsets in values else None


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip().lower() for name in text.split(",") if name.strip())
    if not names or len(set(names)) != len(names):
        raise UsageError(f"columns must name each column once, divided by commas, not {text!r}")
    return names


def _number(values: Mapping[str, str], name: str, low: int) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) < low:
        raise UsageError(f"{name} must be a whole number of at least {low}, not {text!r}")
    return int(text)


def _size(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) * KiB ** _POWERS[match[2].lower()] if match else 0
    if not size:
        raise UsageError(f"{name} must be a size such as 1048576 or 32m, not {text!r}")
    return size


def _switch(values: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = values.get(name)
    if text is None:
        return default
    if text.strip().lower() not in _SWITCHES:
        raise UsageError(f"{name} must be true or false, not {text!r}")
    return _SWITCHES[text.strip().lower()]


def _ranges(text: str | None) -> tuple[Range, ...] | None:
    if text is None:
        return None
    try:
        return tuple(Range(str(database), int(n), int(a), int(b)) for database, n, a, b in json.loads(text))
    except (TypeError, ValueError):
        raise UsageError(f'ranges must be JSON such as [["clicks", 0, 10, 20]], not {text!r}') from None
