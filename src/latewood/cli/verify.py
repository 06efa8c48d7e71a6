"""`latewood verify DIR`: check that a log, or a store, is sound."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

import click

from latewood.cli.arguments import directory
from latewood.cli.engine_option import EngineChoice, engine_options
from latewood.cli.errors import ExitCode, say
from latewood.cli.identity import identity_fields
from latewood.cli.output import Output, output_format
from latewood.cli.place import is_store, node_around
from latewood.cli.progress import progress
from latewood.cli.store_argument import database_at
from latewood.errors import UsageError
from latewood.fs import PosixFS
from latewood.log.layout import Layout
from latewood.log.verify import Finding, Looks
from latewood.queue.verify import verify_queue

_OF_A_PARTITION: Final = (
    "stop the node, and `latewood cluster repair --config node.toml` has it bring this partition back from the others"
)
_OF_A_PARENT: Final = (
    "leave the files alone: `latewood cluster repair --config node.toml` says how the node is replaced; one that comes "
    "back with an older copy has forgotten what it promised to the others"
)


@click.command()
@directory
@click.option("--deep", is_flag=True, help="Read every record and check its checksum.")
@engine_options
@output_format
def verify(directory: Path, output: Output, choice: EngineChoice, *, deep: bool) -> int:
    """Check that the log in DIR is sound, without changing it.  Exits 4 if something is damaged.

    Manifest, headers, footers and readers are always checked, and the records of the open segment.  Works beside a
    writer.

    DIR may also be a store, or a database as STORE/DATABASE.  Then every checksum in every tier is checked, whatever
    --deep says, by a job that runs here; what is broken and has a sound copy is repaired.  Exits 5 beside a writer.
    With --engine spark the checking is done by Spark's executors, which must see the store under the same path.
    """
    if is_store(directory) or database_at(directory):
        from latewood.cli.store_verify import verify_store  # noqa: PLC0415 - LMDB and Arrow, only for a store

        return verify_store(directory, output, choice)
    if choice.is_spark and not deep:
        raise UsageError("without --deep a log is checked in no time: --engine spark is for --deep, and for stores")
    layout = Layout(directory.absolute() if choice.is_spark else directory)
    looks = _looks(layout, choice)
    with progress("verify") as report:
        found = verify_queue(PosixFS(), layout, deep=deep, progress=report, looks=looks)
    summary = {
        "path": directory,
        **identity_fields(found.identity),
        "is_sound": found.is_sound,
        "segments_checked": found.segments_checked,
        "records_checked": found.records_checked,
        "bytes_checked": found.bytes_checked,
    }
    findings = _in_place(layout, found.findings)
    output.report(summary, "findings", Finding._fields, findings)
    if found.is_sound:
        return ExitCode.OK
    for finding in findings:
        if finding.severity == "damage":
            say(f"{finding.path} at byte {finding.offset}: {finding.problem}; {finding.remedy}")
    return ExitCode.CORRUPT


def _in_place(layout: Layout, findings: Iterable[Finding]) -> list[Finding]:
    """Have what is damaged of a node's log be mended as that is: not by hand, and not by `latewood rebuild`.

    Readers' files are no part of it, and what a repair has set aside is the node's no more.
    """
    node, kind = node_around(layout.root), layout.root.absolute().parent.name
    if node is None or kind == "damaged":
        return list(findings)
    remedy = _OF_A_PARTITION if kind == "partitions" else _OF_A_PARENT
    return [one._replace(remedy=remedy) if _is_mended(layout, one) else one for one in findings]


def _is_mended(layout: Layout, finding: Finding) -> bool:
    """Say whether a repair of the node is what helps."""
    return finding.path.parent != layout.readers and finding.severity == "damage"


def _looks(layout: Layout, choice: EngineChoice) -> Looks | None:
    engine = choice.engine(layout.root)
    if engine is None:
        return None
    from latewood.tasks.segments import looks_at_records  # noqa: PLC0415 - only then

    return partial(looks_at_records, engine, layout)
