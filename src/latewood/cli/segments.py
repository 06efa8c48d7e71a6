"""`latewood segments DIR`: list the segments of a log."""

from pathlib import Path

import click

from latewood.cli.arguments import directory
from latewood.cli.errors import ExitCode
from latewood.cli.opening import open_to_read
from latewood.cli.output import Output, output_format
from latewood.log.listing import SegmentInfo, list_segments

_BRIEF = ("segment_id", "state", "first_sequence", "record_count", "size_bytes", "created_at_ns", "path")
_SPARE = ("path", "created_at_ns")


@click.command()
@directory
@output_format
def segments(directory: Path, output: Output) -> int:
    """List the segments of the log in DIR, the oldest first."""
    with open_to_read(directory) as log:
        output.rows(SegmentInfo._fields, list_segments(log), brief=_BRIEF, spare=_SPARE)
    return ExitCode.OK
