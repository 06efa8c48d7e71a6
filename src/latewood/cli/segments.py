"""`latewood segments DIR`: list the segments of a log, or of the logs of a database."""

from pathlib import Path

import click

from latewood.cli.arguments import directory
from latewood.cli.errors import ExitCode
from latewood.cli.opening import open_to_read
from latewood.cli.output import Output, output_format
from latewood.cli.store_argument import database_at
from latewood.log.listing import SegmentInfo, list_segments

_BRIEF = ("segment_id", "state", "first_sequence", "record_count", "size_bytes", "created_at_ns", "path")
_SPARE = ("path", "created_at_ns")


@click.command()
@directory
@output_format
def segments(directory: Path, output: Output) -> int:
    """List the segments of the log in DIR, the oldest first.

    DIR may also be a database, named as STORE/DATABASE: then those of each shard.  What has left the logs is in chunks,
    which `latewood chunks ls` lists.
    """
    if place := database_at(directory):
        from latewood.cli.database_logs import list_database_segments  # noqa: PLC0415 - LMDB, only for a store

        return list_database_segments(place, output, _BRIEF, _SPARE)
    with open_to_read(directory) as log:
        output.rows(SegmentInfo._fields, list_segments(log), brief=_BRIEF, spare=_SPARE)
    return ExitCode.OK
