"""`latewood tail DIR`: print the last records of a log, or of a database, and with -f those that come."""

from collections.abc import Iterator
from pathlib import Path

import click

from latewood.cli.arguments import directory
from latewood.cli.errors import ExitCode
from latewood.cli.opening import open_to_read
from latewood.cli.output import Format
from latewood.cli.records import chosen_format, print_records, record_format
from latewood.cli.store_argument import database_at
from latewood.kernel import Record
from latewood.queue import Queue, Reader

_COUNT_DEFAULT = 10


@click.command()
@directory
@click.option("--count", "-n", type=click.IntRange(min=0), help="How many of the last records to print.  [default: 10]")
@click.option("--follow", "-f", is_flag=True, help="Go on with those that come, until interrupted.")
@click.option("--reader", "name", metavar="NAME", help="Go on where this reader stopped, and remember how far it came.")
@record_format
def tail(
    directory: Path, count: int | None, name: str | None, format_name: Format | None, *, follow: bool, raw: bool
) -> int:
    """Print the last records of the log in DIR, or of the database that is named as STORE/DATABASE.

    Works beside a writer, and outlives it: a writer that is killed and started again is followed on.  With --reader,
    records are printed from where the reader stopped, the oldest if it is new, and its position is committed after
    they were printed: each is printed at least once.
    """
    if name is not None and count is not None:
        message = "--count and --reader exclude each other: `latewood readers seek` moves a reader"
        raise click.UsageError(message, click.get_current_context())
    chosen = chosen_format(format_name, raw=raw)
    last = _COUNT_DEFAULT if count is None else count
    if place := database_at(directory):
        from latewood.cli.database_reading import tail_database  # noqa: PLC0415 - LMDB and Arrow, only for a store

        tail_database(place, last, name, chosen, follow=follow)
        return ExitCode.OK
    with open_to_read(directory) as log:
        if name is None:
            print_records(_last(log, last, follow=follow), chosen)
        else:
            with log.reader(name) as reader:
                print_records(_unread(reader, follow=follow), chosen)
    return ExitCode.OK


def _last(log: Queue, count: int, *, follow: bool) -> Iterator[list[Record]]:
    """Yield the last `count` records and, if asked, those that come."""
    stream = log.stream(max(log.first_sequence, log.next_sequence - count))
    try:
        while True:
            if records := stream.read():
                yield records
            elif follow:
                log.wait(stream, None)
            else:
                return
    finally:
        stream.close()


def _unread(reader: Reader, *, follow: bool) -> Iterator[list[Record]]:
    """Yield what the reader has not committed; whoever asks for more has dealt with what came before."""
    while records := reader.poll(timeout=0.0):
        yield records
        reader.commit()
    while follow:
        if records := reader.poll(timeout=None):
            yield records
            reader.commit()
