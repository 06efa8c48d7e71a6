"""`latewood cleanup DIR`: delete the segments that nobody needs."""

from pathlib import Path

import click

from latewood.cli.arguments import DURATION, SIZE, directory
from latewood.cli.confirmation import ask, confirmed
from latewood.cli.errors import ExitCode, say
from latewood.cli.human import format_size
from latewood.cli.opening import open_to_change, open_to_read
from latewood.cli.output import Output, output_format
from latewood.cli.place import check_no_shard, is_store
from latewood.cli.store_argument import database_at
from latewood.errors import UsageError
from latewood.log.listing import SegmentInfo, list_segments
from latewood.queue import Queue, RetentionPolicy

_COLUMNS = ("segment_id", "first_sequence", "record_count", "size_bytes", "sealed_at_ns", "path", "deleted")


@click.command()
@directory
@confirmed
@click.option("--max-bytes", type=SIZE, help="Without readers, keep at most this much in sealed segments.")
@click.option("--max-age", type=DURATION, help="Without readers, keep segments this long after their seal.")
@click.option(
    "--ignore-readers-silent-for",
    "silent",
    type=DURATION,
    help="A reader that committed nothing for so long holds nothing back.",
)
@output_format
def cleanup(
    directory: Path,
    max_bytes: int | None,
    max_age: int | None,
    silent: int | None,
    output: Output,
    *,
    dry_run: bool,
    yes: bool,
) -> int:
    """Delete the sealed segments of the log in DIR that every reader has passed.

    Without readers nothing is deleted, unless --max-bytes or --max-age say what may go.  The log must not be open to
    write; --dry-run works beside a writer.

    A store takes care of its own logs: `latewood flush` lets go of what is in chunks, and `latewood retain` of chunks.
    """
    if is_store(directory) or database_at(directory):
        raise UsageError(
            f"{directory} is of a store, which cleans its logs itself: `latewood flush` lets them go of what is in "
            "chunks, and `latewood retain` lets go of chunks"
        )
    check_no_shard(directory, "`latewood flush` lets it go of what is in chunks")
    policy = RetentionPolicy(max_bytes=max_bytes, max_age_ms=max_age, ignore_readers_silent_ms=silent)
    with open_to_read(directory) if dry_run else open_to_change(directory) as log:
        log.retention = policy
        planned = _planned(log)
        if planned and not dry_run and not ask(_question(planned), yes=yes):
            say("nothing was deleted")
            return ExitCode.FAILED
        deleted = set(log.cleanup(dry_run=dry_run))
        rows = [(*_cells(segment), not dry_run) for segment in planned if segment.segment_id in deleted]
    output.rows(_COLUMNS, rows)
    return ExitCode.OK


def _planned(log: Queue) -> list[SegmentInfo]:
    plan = log.retention_plan()
    retire = set(plan.retire)
    rest = "the rest" if retire else "there is nothing to delete: all of it"
    if plan.held_by:
        say(f"{rest} is kept for {'reader' if len(plan.held_by) == 1 else 'readers'} {', '.join(plan.held_by)}")
    elif not retire:
        say(f"there is nothing to delete{_why_nothing(log)}")
    return [segment for segment in list_segments(log) if segment.segment_id in retire] if retire else []


def _why_nothing(log: Queue) -> str:
    if not len(log.view().manifest.entries):
        return ": no segment is sealed yet"
    if log.readers() or log.retention != RetentionPolicy():
        return ""
    return ": without readers only --max-bytes and --max-age let segments go"


def _question(planned: list[SegmentInfo]) -> str:
    records, size = sum(one.record_count for one in planned), sum(one.size_bytes for one in planned)
    return f"Delete {len(planned):,} segments with {records:,} records, {format_size(size)}?"


def _cells(segment: SegmentInfo) -> tuple[object, ...]:
    return tuple(getattr(segment, name) for name in _COLUMNS[:-1])
