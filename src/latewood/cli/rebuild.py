"""`latewood rebuild DIR`: make a lost or corrupt manifest again from the segments, or the catalog of a store.

Of a database it finds the shards whose logs end before their chunks do, and has them go on behind the chunks.
"""

from functools import partial
from pathlib import Path

import click

from latewood.cli.arguments import directory
from latewood.cli.confirmation import ask, confirmed
from latewood.cli.engine_option import EngineChoice, engine_options
from latewood.cli.errors import ExitCode, say
from latewood.cli.identity import identity_fields
from latewood.cli.opening import open_to_read
from latewood.cli.output import Output, output_format
from latewood.cli.place import Kind, check_rebuildable, kind_of
from latewood.cli.progress import progress
from latewood.cli.store_argument import DatabasePath
from latewood.errors import UsageError
from latewood.format.store_layout import DATABASES_NAME, DESCRIPTION_NAME
from latewood.fs import PosixFS
from latewood.log import rebuild as library
from latewood.log.identity import Claim
from latewood.log.layout import Layout


@click.command()
@directory
@confirmed
@click.option("--accept-loss", is_flag=True, help="Go ahead though records are missing or a segment is damaged.")
@click.option("--catalog", "is_catalog", is_flag=True, help="DIR is a store: make its catalog again.")
@click.option("--new-life", is_flag=True, help="DIR is a copy of a log, put in its place by hand: note that in it.")
@engine_options
@output_format
def rebuild(
    directory: Path,
    output: Output,
    choice: EngineChoice,
    *,
    dry_run: bool,
    yes: bool,
    accept_loss: bool,
    is_catalog: bool,
    new_life: bool,
) -> int:
    """Read the segments of the log in DIR and write a manifest of those that are sound.

    Segments are never touched.  With problems, such as a missing segment, nothing is written unless --accept-loss is
    given; readers then meet the gap.  The log must not be open to write.  Exits 4 if problems keep it from writing.

    The report's `next_sequence_min` is the first sequence of the last segment: that one's records are counted when the
    log is opened, and new ones follow them.

    With --catalog, DIR is a store whose catalog is lost or damaged.  It is made again from `database.json`, the logs,
    the chunks and the archive; what was there is kept beside it, under another name.  Jobs are lost, and records are
    not.  Exits 4 if something could not be read.

    With --new-life, DIR is a sound log, an older copy that was put by hand where a later state of it had been.  Nothing
    is made again: the log begins a new life at its end.  A position that was taken beyond that end, in the log that was
    there before, is refused from then on, also once this one has grown past it.  Give it before the copy is opened.

    DIR may also be a database, as STORE/DATABASE.  Then the logs of its shards are compared with its chunks: one that
    ends before them, or is gone, or is another log, was restored from an older copy, lost, or replaced, and the store
    refuses to append to it.  With --accept-loss it is replaced by a log that goes on behind the chunks; what was there
    is kept under another name.
    Exits 4 if there is such a log and --accept-loss is not given.

    With --engine spark it is Spark's executors that read segments, chunks and objects; they must see DIR under the same
    path.
    """
    if new_life and (accept_loss or is_catalog):
        message = "--new-life makes nothing again: give it alone"
        raise click.UsageError(message, click.get_current_context())
    check_rebuildable(directory, is_catalog=is_catalog)
    if new_life:
        return _begin_life(directory, output, dry_run=dry_run, yes=yes)
    if is_catalog:
        from latewood.cli.catalog_rebuild import rebuild_store  # noqa: PLC0415 - LMDB and Arrow, only for a store

        return rebuild_store(directory, output, choice, dry_run=dry_run, yes=yes)
    if kind_of(directory) is Kind.DATABASE:
        from latewood.cli.database_rebuild import rebuild_database  # noqa: PLC0415 - as above

        if choice.is_spark:
            raise UsageError(
                "the logs of a database are looked at in no time: --engine spark is for segments and chunks"
            )
        place = DatabasePath(directory.parent, directory.name)
        return rebuild_database(place, output, dry_run=dry_run, yes=yes, accept_loss=accept_loss)
    look_first = not dry_run and not yes
    looks = _looks(directory, choice)
    found = _rebuild(directory, looks, dry_run=dry_run or look_first, accept_loss=accept_loss)
    if look_first and (accept_loss or not found.problems):
        if not ask(_question(found), yes=yes):
            say("nothing was written")
            return ExitCode.FAILED
        found = _rebuild(directory, looks, dry_run=False, accept_loss=accept_loss)
    summary = {name: value for name, value in found._asdict().items() if name != "problems"}
    output.report(summary, "problems", library.Problem._fields, found.problems)
    return _judge(found, dry_run=dry_run)


def _begin_life(directory: Path, output: Output, *, dry_run: bool, yes: bool) -> ExitCode:
    if kind_of(directory) is Kind.DATABASE:
        raise UsageError(
            f"{directory} is a database: give each of the logs of its shards, "
            f"{directory.parent / DATABASES_NAME}/…/shards/00000"
        )
    with open_to_read(directory) as log:
        identity, end = log.identity, log.next_sequence
    if identity is None:
        say("nothing was written: an older program made this log; opening it to append gives it an identity of its own")
        return ExitCode.OK
    if dry_run:
        say(f"would begin a new life at sequence {end}")
        return ExitCode.OK
    if not ask(f"Begin a new life of {directory} at sequence {end}?", yes=yes):
        say("nothing was written")
        return ExitCode.FAILED
    begun = library.begin_life(PosixFS(), Layout(directory))
    assert begun is not None
    output.show(identity_fields(begun) | {"start_sequence": begun.lives[-1].start_sequence})
    say(f"positions up to sequence {begun.lives[-1].start_sequence} stay valid; those beyond it are refused")
    return ExitCode.OK


def _looks(directory: Path, choice: EngineChoice) -> library.Looks | None:
    engine = choice.engine(directory)
    if engine is None:
        return None
    from latewood.tasks.segments import looks_at_ends  # noqa: PLC0415 - only then

    return partial(looks_at_ends, engine)


def _rebuild(
    directory: Path, looks: library.Looks | None, *, dry_run: bool, accept_loss: bool
) -> library.RebuildReport:
    layout = Layout(directory.absolute() if looks else directory)
    with progress("rebuild") as report:
        return library.rebuild(
            PosixFS(),
            layout,
            dry_run=dry_run,
            accept_loss=accept_loss,
            progress=report,
            looks=looks,
            claim=_claim(directory.absolute()),
        )


def _claim(directory: Path) -> Claim | None:
    """Return what a log is called that is the shard of a database, should it not know that any more itself."""
    if not (directory.parent.parent / DESCRIPTION_NAME).is_file():
        return None
    from latewood.runtime.births import claim_of_shard  # noqa: PLC0415 - LMDB, only for a store

    return claim_of_shard(PosixFS(), directory)


def _question(found: library.RebuildReport) -> str:
    loss = f", without what {len(found.problems):,} problems cost," if found.problems else ""
    return (
        f"Replace the manifest by one of {found.segments_used:,} segments{loss} from sequence {found.first_sequence}?"
    )


def _judge(found: library.RebuildReport, *, dry_run: bool) -> ExitCode:
    end = f"at least {found.next_sequence_min}: the records of the last one are counted when the log is opened"
    if found.written:
        say(f"wrote a manifest of {found.segments_used:,} segments, from {found.first_sequence} to {end}")
        if found.identity is None:
            say(
                "no identity was found, because an older program made the log or it is lost; so the log has a new one: "
                "positions that name another are refused, and older programs cannot open it any more"
            )
        say("check it with `latewood verify --deep`")
        return ExitCode.OK
    for problem in found.problems:
        say(f"{problem.path}: {problem.problem}")
    if found.problems:
        say("nothing was written; restore what is missing, or go on without it with --accept-loss")
        return ExitCode.CORRUPT
    what = f"a manifest of {found.segments_used:,} segments, from {found.first_sequence} to {end}"
    if found.is_needed or not dry_run:
        say(f"nothing was written; it would be {what}")
    else:
        say("there is nothing to do: the manifest is sound, and lists the same segments")
    return ExitCode.OK
