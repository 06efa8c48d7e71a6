"""From what was asked for to the ranges that are read: bounds, time travel, what retention took."""

from latewood.errors import DataLost, UsageError
from latewood.spark.offsets import EARLIEST, LATEST, Bound, ShardId, unknown_shards
from latewood.spark.options import ReadOptions
from latewood.spark.survey import Shard, Survey, check_is_store


def batch_ranges(survey: Survey, options: ReadOptions) -> dict[ShardId, list[tuple[int, int]]]:
    """Return which sequences of each shard a batch query reads.

    Raises:
        UsageError: a shard is not there, or a bound lies beyond the end.
        DataLost: records that were asked for are gone, and that should fail.
        LogBehind: so is the log of a shard, or it ends before its chunks do.
    """
    check_bounds(survey, options)
    if options.ranges is not None:
        chosen: dict[ShardId, list[tuple[int, int]]] = {shard.id: [] for shard in survey.shards}
        for database, number, start, stop in options.ranges:
            chosen.setdefault(ShardId(database, number), []).append((start, stop))
        return {shard.id: chosen[shard.id] for shard in survey.shards}
    return {shard.id: [_range(shard, options)] for shard in survey.shards}


def check_bounds(survey: Survey, options: ReadOptions) -> None:
    """Refuse bounds that name shards that are not there, and time travel in a log.

    Raises:
        UsageError: it is so.
    """
    shards = [shard.id for shard in survey.shards]
    for bound, option in ((options.starting, "startingOffsets"), (options.ending, "endingOffsets")):
        if unknown := unknown_shards(bound, shards):
            raise UsageError(f"{option} names {unknown[0]}, which is not there; there are {_listed(shards)}")
    if options.as_of_generation is not None:
        check_is_store(survey, "asOfGeneration")
        if survey.generation is not None and options.as_of_generation > survey.generation:
            message = f"generation {options.as_of_generation} has not come yet; the chunks are at {survey.generation}"
            raise UsageError(f"asOfGeneration: {message}")


def place_of(shard: Shard, bound: Bound, first: int, end: int) -> int | None:
    """Return the sequence that a bound means in a shard; None if it says nothing about it."""
    if bound.timestamp_ns is not None:
        return min(end, shard.find_timestamp(bound.timestamp_ns))
    match bound.of(shard.id):
        case int(word) if word == EARLIEST:
            return first
        case int(word) if word == LATEST:
            return end
        case sequence:
            return sequence


def checked_start(shard: Shard, start: int, first: int, *, fails: bool) -> int:
    """Return where to begin, given what is still there.

    Raises:
        DataLost: retention removed the beginning, and that should fail.
    """
    if start >= first:
        return start
    if fails:
        error = DataLost(start, first)
        error.add_note(f"of {shard.id}: set failOnDataLoss to false to begin at {first}")
        raise error
    return first


def _range(shard: Shard, options: ReadOptions) -> tuple[int, int]:
    end = shard.end()
    first = shard.first()
    if options.as_of_generation is not None:
        end = min(end, shard.as_of(options.as_of_generation))
    start, stop = place_of(shard, options.starting, first, end), place_of(shard, options.ending, first, end)
    start, stop = first if start is None else start, end if stop is None else stop
    if shard.behind is not None and options.fail_on_data_loss and not _ends_in_chunks(shard, options, stop):
        raise shard.behind
    if options.fail_on_data_loss and options.as_of_generation is None:
        _check_end(shard, "startingOffsets", start, end)
        _check_end(shard, "endingOffsets", stop, end)
    start = checked_start(shard, start, first, fails=options.fail_on_data_loss)
    return start, max(start, min(stop, end))


def _ends_in_chunks(shard: Shard, options: ReadOptions, stop: int) -> bool:
    """Say whether a query of a shard whose log is behind asks for nothing that only the log had."""
    if options.as_of_generation is not None or stop < shard.end():
        return True
    return stop == shard.end() == options.ending.of(shard.id)


def _check_end(shard: Shard, option: str, sequence: int, end: int) -> None:
    if sequence > end:
        raise UsageError(f"{option} of {shard.id} is {sequence}, and its log ends at {end}")


def _listed(shards: list[ShardId]) -> str:
    shown = ", ".join(map(str, shards[:4]))
    return f"{shown} and {len(shards) - 4} more" if len(shards) > 4 else shown  # noqa: PLR2004 - enough to see the form
