"""`latewood readers`: list, move and remove named readers.  Works beside a writer."""

from pathlib import Path

import click

from latewood.cli.arguments import SEQUENCE, TIME, directory
from latewood.cli.confirmation import ask, confirmed
from latewood.cli.errors import ExitCode, say
from latewood.cli.opening import open_to_read
from latewood.cli.output import Output, output_format
from latewood.cli.place import check_no_shard
from latewood.cli.store_argument import database_at
from latewood.errors import NotFoundError
from latewood.limits import READER_PREFIX_OWN
from latewood.queue import Queue
from latewood.queue.listing import ReaderStatus, list_readers

_LAG_COLUMNS = ("name", "lag", "behind_ms")


@click.group()
def readers() -> None:
    """List, move and remove named readers."""


@readers.command()
@directory
@output_format
def ls(directory: Path, output: Output) -> int:
    """List the readers of the log in DIR, or of the database that is named as STORE/DATABASE.

    Exits 4 if the file of one is damaged, the log went back behind it, or its position is of another log.
    """
    if place := database_at(directory):
        from latewood.cli.database_readers import list_database_readers  # noqa: PLC0415 - LMDB, only for a store

        return list_database_readers(place, output)
    with open_to_read(directory) as log:
        found = list_readers(log)
    output.rows(ReaderStatus._fields, found)
    return _judge(found)


@readers.command()
@directory
@click.argument("name", required=False)
@click.option("--max", "lag_max", type=SEQUENCE, help="Exit 1 if a reader lags by more records than this.")
@output_format
def lag(directory: Path, name: str | None, lag_max: int | None, output: Output) -> int:
    """Say how many records the readers of the log in DIR, or the one called NAME, have still to commit.

    DIR may also be a database, named as STORE/DATABASE.
    """
    if place := database_at(directory):
        from latewood.cli.database_readers import show_lag  # noqa: PLC0415 - as above

        return show_lag(place, name, lag_max, output)
    with open_to_read(directory) as log:
        found = list_readers(log) if name is None else [_find(log, name)]
    output.rows(_LAG_COLUMNS, [(one.name, one.lag, one.behind_ms) for one in found])
    if lag_max is not None and any(one.lag is not None and one.lag > lag_max for one in found):
        return ExitCode.FAILED
    return _judge(found)


@readers.command()
@directory
@click.argument("name")
@click.option("--sequence", type=SEQUENCE, help="To this record.")
@click.option("--time", "time_ns", type=TIME, help="To the first record at or after this time, or 2h ago.")
@click.option("--earliest", is_flag=True, help="To the oldest record.")
@click.option("--latest", is_flag=True, help="Behind the newest record.")
@click.option("--create", is_flag=True, help="Make the reader if there is none of that name.")
@output_format
def seek(
    directory: Path,
    name: str,
    sequence: int | None,
    time_ns: int | None,
    output: Output,
    *,
    earliest: bool,
    latest: bool,
    create: bool,
) -> int:
    """Move the reader called NAME of the log in DIR, or of a database, STORE/DATABASE.  Durable when it returns.

    A reader whose file is damaged is mended by this, and so is one that the log went back behind, or that has read
    another log.
    """
    if [sequence is not None, time_ns is not None, earliest, latest].count(True) != 1:
        message = "give exactly one of --sequence, --time, --earliest and --latest"
        raise click.UsageError(message, click.get_current_context())
    if place := database_at(directory):
        from latewood.cli.database_readers import seek_reader  # noqa: PLC0415 - as above

        return seek_reader(
            place,
            name,
            "earliest" if earliest else "latest" if latest else None,
            sequence,
            time_ns,
            output,
            create=create,
        )
    _check_is_not_of_a_store(directory, name)
    with open_to_read(directory) as log:
        before = None if create and name not in _names(log) else _find(log, name).sequence
        if time_ns is not None:
            sequence = log.find_timestamp(time_ns)
        with log.reader(name, "earliest" if earliest else "latest" if latest else sequence or 0) as reader:
            reader.commit()  # Where the directory cannot be written, this says so.
            output.show({"name": name, "sequence_before": before, "sequence": reader.sequence, "lag": reader.lag()})
    return ExitCode.OK


@readers.command()
@directory
@click.argument("name")
@confirmed
def rm(directory: Path, name: str, *, dry_run: bool, yes: bool) -> int:
    """Forget the reader called NAME of the log in DIR, so that it holds no segment back any more.

    DIR may also be a database, named as STORE/DATABASE.
    """
    if place := database_at(directory):
        from latewood.cli.database_readers import remove_reader  # noqa: PLC0415 - as above

        return remove_reader(place, name, dry_run=dry_run, yes=yes)
    _check_is_not_of_a_store(directory, name)
    with open_to_read(directory) as log:
        found = _find(log, name)
        reader = f"reader {name!r} ({_place(found)})"
        if dry_run:
            say(f"would remove {reader}")
        elif ask(f"Remove {reader}?", yes=yes):
            log.remove_reader(name)
            say(f"removed {reader}")
        else:
            say("nothing was removed")
            return ExitCode.FAILED
    return ExitCode.OK


def _check_is_not_of_a_store(directory: Path, name: str) -> None:
    """Keep the reader that a store has in each of its shards from being moved: it holds what no chunk has yet."""
    if name.startswith(READER_PREFIX_OWN):
        check_no_shard(directory, "`latewood flush` moves it on")


def _names(log: Queue) -> list[str]:
    return [one.name for one in list_readers(log)]


def _find(log: Queue, name: str) -> ReaderStatus:
    for one in list_readers(log):
        if one.name == name:
            return one
    message = f"there is no reader {name!r} at {log.path}; it has {', '.join(_names(log)) or 'none'}"
    raise NotFoundError(message)


def _place(found: ReaderStatus) -> str:
    if found.sequence is None:
        return "damaged"
    return f"at {found.sequence} of another log" if found.lag is None else f"at {found.sequence}, lag {found.lag:,}"


def _judge(found: list[ReaderStatus]) -> ExitCode:
    """Tell of damaged readers, which stop all deletion."""
    damaged = [one for one in found if one.problem]
    for one in damaged:
        remedy = f"`latewood readers seek` moves reader {one.name!r}, and `latewood readers rm` removes it"
        say(str(one.problem) if one.sequence is not None else f"{one.problem}; {remedy}")
    return ExitCode.CORRUPT if damaged else ExitCode.OK
