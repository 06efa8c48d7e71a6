"""`latewood inspect SEGMENT`: print one segment's header, footer and record count."""

from pathlib import Path

import click

from latewood.cli.arguments import PATH
from latewood.cli.errors import ExitCode, say
from latewood.cli.output import Output, output_format
from latewood.cli.place import Kind, kind_of
from latewood.errors import NotFoundError, UsageError
from latewood.fs import PosixFS
from latewood.log.summary import SegmentSummary, summarize

_MAGIC = b"LWSEGMNT"
_SUCH = "files such as segments/2026/01/31/000000000.q"
_DIRECTORIES = {
    Kind.LOG: "a log: `latewood info` shows it, and `latewood segments` lists its segments",
    Kind.SHARD: "a shard of a store: `latewood segments` lists its segments",
    Kind.STORE: "a store: `latewood status` shows it, and `latewood chunks inspect` looks into its chunks",
}
_ROLES = {
    "manifest.1": "a slot of the manifest: `latewood segments` lists what it names",
    "manifest.2": "a slot of the manifest: `latewood segments` lists what it names",
    "manifest.current": "the manifest's pointer to one of its two slots",
    "identity": "the second copy of which log it is: `latewood info` shows that",
    "index.meta": "the checkpoint, which says how far the open segment is durable",
    "current.sealed": "the pointer to the latest sealed segment",
    "wake": "where readers sleep until an append wakes them",
}
"""The files of a log, and what they are to it."""


@click.command()
@click.argument("segment", type=PATH)
@click.option("--deep", is_flag=True, help="Check every record of a sealed segment too.")
@output_format
def inspect(segment: Path, output: Output, *, deep: bool) -> int:
    """Show what the segment file SEGMENT says about itself.  Exits 4 if it is not sound.

    In an open segment every record is checked.  A bad one at its end may be a torn tail, which opening the log to
    append cuts; `latewood verify` can tell.
    """
    _check_is_segment(segment)
    if not segment.exists():
        message = f"there is no file {segment}; `latewood segments` lists those of a log, {_SUCH}"
        raise NotFoundError(message)
    summary = summarize(PosixFS(), segment, deep=deep)
    output.show(_fields(summary))
    if summary.problem:
        say(f"{summary.path} at byte {summary.problem_offset}: {summary.problem}; run `latewood verify` on its log")
        return ExitCode.CORRUPT
    return ExitCode.OK


def _check_is_segment(path: Path) -> None:
    """Tell a file that never was a segment from one that is damaged."""
    if path.is_dir():
        message = f"{path} is not a segment but {_DIRECTORIES.get(kind_of(path), 'a directory')}; segments are {_SUCH}"
    elif kind_of(path) is Kind.DATABASE:
        message = f"{path} names a database, not a segment: `latewood segments` lists the files of its logs, {_SUCH}"
    elif not path.is_file() or path.suffix == ".q" or ".q." in path.name or _begins_as_segment(path):
        return
    else:
        message = f"{path} is not a segment but {_role(path)}; segments are {_SUCH}"
    raise UsageError(message)


def _begins_as_segment(path: Path) -> bool:
    file = PosixFS().open(path)
    try:
        return file.pread(len(_MAGIC), 0) == _MAGIC
    finally:
        file.close()


def _role(path: Path) -> str:
    """Return what a file is to a log, by its name."""
    if path.parent.name == "readers" and path.suffix == ".meta":
        return "a reader's position: `latewood readers ls` shows it"
    return _ROLES.get(path.name, "a lock" if path.suffix == ".lock" else "a file of another kind")


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
