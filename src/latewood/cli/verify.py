"""`latewood verify DIR`: check that a log, or a store, is sound."""

from pathlib import Path

import click

from latewood.cli.arguments import directory
from latewood.cli.errors import ExitCode, say
from latewood.cli.output import Output, output_format
from latewood.cli.progress import progress
from latewood.cli.store_argument import database_at, is_store
from latewood.fs import PosixFS
from latewood.log.layout import Layout
from latewood.log.verify import Finding
from latewood.queue.verify import verify_queue


@click.command()
@directory
@click.option("--deep", is_flag=True, help="Read every record and check its checksum.")
@output_format
def verify(directory: Path, output: Output, *, deep: bool) -> int:
    """Check that the log in DIR is sound, without changing it.  Exits 4 if something is damaged.

    Manifest, headers, footers and readers are always checked, and the records of the open segment.  Works beside a
    writer.

    DIR may also be a store, or a database as STORE/DATABASE.  Then every checksum in every tier is checked, whatever
    --deep says, by a job that runs here; what is broken and has a sound copy is repaired.  Exits 5 beside a writer.
    """
    if is_store(directory) or database_at(directory):
        from latewood.cli.store_verify import verify_store  # noqa: PLC0415 - LMDB and Arrow, only for a store

        return verify_store(directory, output)
    with progress("verify") as report:
        found = verify_queue(PosixFS(), Layout(directory), deep=deep, progress=report)
    summary = {
        "path": directory,
        "is_sound": found.is_sound,
        "segments_checked": found.segments_checked,
        "records_checked": found.records_checked,
        "bytes_checked": found.bytes_checked,
    }
    output.report(summary, "findings", Finding._fields, found.findings)
    if found.is_sound:
        return ExitCode.OK
    for finding in found.findings:
        if finding.severity == "damage":
            say(f"{finding.path} at byte {finding.offset}: {finding.problem}; {finding.remedy}")
    return ExitCode.CORRUPT
