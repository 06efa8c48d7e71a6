"""`latewood readers` on a database of a store: one position for each shard.  Works beside a writer."""

from collections.abc import Mapping
from typing import Literal

from latewood.cli.confirmation import ask
from latewood.cli.database_reading import committing_readers, moment
from latewood.cli.errors import ExitCode, say
from latewood.cli.output import Output
from latewood.cli.store_argument import DatabasePath, find_database, open_store
from latewood.cli.store_figures import READER_BRIEF, READER_COLUMNS, reader_rows
from latewood.errors import NotFoundError
from latewood.runtime import Database

_NAME, _LAG = READER_COLUMNS.index("reader"), READER_COLUMNS.index("lag")
_PROBLEM = READER_COLUMNS.index("problem")


def list_database_readers(place: DatabasePath, output: Output) -> int:
    """Do what `latewood readers ls` says."""
    with open_store(place.root) as store:
        rows = reader_rows(find_database(store, place.name))
    output.rows(READER_COLUMNS, rows, brief=READER_BRIEF)
    return _judged(rows)


def show_lag(place: DatabasePath, name: str | None, lag_max: int | None, output: Output) -> int:
    """Do what `latewood readers lag` says."""
    with open_store(place.root) as store:
        database = find_database(store, place.name)
        rows = reader_rows(database) if name is None else [_row(database, name)]
    output.rows(("name", "lag"), [(row[_NAME], row[_LAG]) for row in rows])
    if _judged(rows) != ExitCode.OK:
        return ExitCode.CORRUPT
    is_late = lag_max is not None and any(int(str(row[_LAG])) > lag_max for row in rows)
    return ExitCode.FAILED if is_late else ExitCode.OK


def seek_reader(
    place: DatabasePath,
    name: str,
    where: Literal["earliest", "latest"] | None,
    sequence: int | None,
    time_ns: int | None,
    output: Output,
    *,
    create: bool,
) -> int:
    """Do what `latewood readers seek` says; a sequence is one of every shard."""
    with open_store(place.root) as store:
        database = find_database(store, place.name)
        if not create:
            _row(database, name)
        start = where or (_sequences(database, sequence) if time_ns is None else moment(time_ns))
        with committing_readers(store, database).open(name, database.shards, start, merged=False) as reader:
            reader.commit()
            positions = {str(shard): at for shard, at in reader.positions.items()}
            output.show({"name": name, "positions": positions, "lag": reader.lag()})
    return ExitCode.OK


def remove_reader(place: DatabasePath, name: str, *, dry_run: bool, yes: bool) -> int:
    """Do what `latewood readers rm` says."""
    with open_store(place.root) as store:
        database = find_database(store, place.name)
        lag = _row(database, name)[_LAG]
        reader = f"reader {name!r}" + (f" (lag {lag:,})" if lag is not None else "")
        if dry_run:
            say(f"would remove {reader}")
        elif ask(f"Remove {reader}?", yes=yes):
            committing_readers(store, database).remove(name)
            say(f"removed {reader}")
        else:
            say("nothing was removed")
            return ExitCode.FAILED
    return ExitCode.OK


def _judged(rows: list[tuple[object, ...]]) -> ExitCode:
    """Say what is wrong with readers that are damaged, or have read another log."""
    problems = [str(row[_PROBLEM]) for row in rows if row[_PROBLEM] is not None]
    for problem in problems:
        say(problem)
    return ExitCode.CORRUPT if problems else ExitCode.OK


def _row(database: Database, name: str) -> tuple[object, ...]:
    """Return the row of a reader.

    Raises:
        NotFoundError: there is none of that name.
    """
    rows = {str(row[_NAME]): row for row in reader_rows(database)}
    if name not in rows:
        message = f"there is no reader {name!r} of {database.name!r}; it has {', '.join(rows) or 'none'}"
        raise NotFoundError(message)
    return rows[name]


def _sequences(database: Database, sequence: int | None) -> Mapping[int, int]:
    """Return a sequence for each shard, within what it has."""
    return {
        shard.shard: min(max(sequence or 0, shard.first_sequence), shard.next_sequence) for shard in database.stats()
    }
