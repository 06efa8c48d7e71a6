"""`latewood inspect SEGMENT`: print one segment's header, footer and record count."""

from pathlib import Path

import click

from latewood.cli.arguments import PATH
from latewood.cli.errors import ExitCode, say
from latewood.cli.output import Output, output_format
from latewood.fs import PosixFS
from latewood.log.summary import SegmentSummary, summarize


@click.command()
@click.argument("segment", type=PATH)
@click.option("--deep", is_flag=True, help="Check every record of a sealed segment too.")
@output_format
def inspect(segment: Path, output: Output, *, deep: bool) -> int:
    """Show what the segment file SEGMENT says about itself.  Exits 4 if it is not sound.

    In an open segment every record is checked.  A bad one at its end may be a torn tail, which opening the log to
    append cuts; `latewood verify` can tell.
    """
    summary = summarize(PosixFS(), segment, deep=deep)
    output.show(_fields(summary))
    if summary.problem:
        say(f"{summary.path} at byte {summary.problem_offset}: {summary.problem}; run `latewood verify` on its log")
        return ExitCode.CORRUPT
    return ExitCode.OK


def _fields(summary: SegmentSummary) -> dict[str, object]:
    header, footer = summary.header, summary.footer
    fields: dict[str, object] = {
        "path": summary.path,
        "state": "sealed" if footer else "open",
        "is_sound": summary.problem is None,
        "problem": summary.problem,
        "problem_offset": summary.problem_offset if summary.problem else None,
        "size_bytes": summary.size,
        "record_count": summary.record_count,
    }
    if header:
        fields["segment_id"] = header.segment_index
        fields["first_sequence"] = header.base_record_count
        fields["segment_bytes_max"] = header.max_size
        fields["index_interval"] = header.index_interval
        fields["ext_id"] = header.ext_id
        fields["created_at_ns"] = header.created_at
    if footer:
        fields["sealed_at_ns"] = footer.sealed_at
        fields["first_timestamp_ns"] = footer.first_record_timestamp
        fields["last_timestamp_ns"] = footer.last_record_timestamp
        fields["max_timestamp_ns"] = footer.max_timestamp
        fields["min_ext_id"] = footer.min_ext_id
        fields["max_ext_id"] = footer.max_ext_id
        fields["index_count"] = footer.index_count
        fields["coordinator_watermark"] = footer.coordinator_watermark
        fields["flush_failed"] = footer.flush_failure_flag
    return fields
