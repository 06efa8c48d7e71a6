"""`latewood cat DIR`: print the records of a log, or of a database of a store, from the oldest on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from latewood.cli.arguments import SEQUENCE, TIME, directory, refuse_options
from latewood.cli.errors import ExitCode
from latewood.cli.opening import open_to_read
from latewood.cli.output import Format
from latewood.cli.records import chosen_format, print_records, record_format
from latewood.cli.store_argument import database_at
from latewood.kernel import Record
from latewood.limits import READ_RECORDS_MAX
from latewood.queue import Queue


@click.command()
@directory
@click.option("--start", type=SEQUENCE, help="The first sequence to print.  [default: the oldest]")
@click.option("--stop", type=SEQUENCE, help="The sequence to stop before.  [default: the end]")
@click.option("--since", type=TIME, help="Begin at this time: 2026-01-31T12:00Z, or 2h for two hours ago.")
@click.option("--shard", type=click.IntRange(min=0), help="Of a database: only this shard.")
@click.option("--as-of", type=click.IntRange(min=0), help="Of a database: only what its chunks had at this generation.")
@click.option("--merged", is_flag=True, help="Of a database: all shards, by time.")
@record_format
def cat(
    directory: Path,
    start: int | None,
    stop: int | None,
    since: int | None,
    format_name: Format | None,
    *,
    raw: bool,
    **of_database: Any,
) -> int:
    """Print the records of the log in DIR, or of the database that is named as STORE/DATABASE, as far as written.

    Of a database, one shard comes after the other, and records are read from wherever they are: log, chunks, archive.
    Works beside a writer.  Payloads that are not UTF-8 are printed as base64.
    """
    if start is not None and since is not None:
        message = "--start and --since exclude each other"
        raise click.UsageError(message, click.get_current_context())
    chosen = chosen_format(format_name, raw=raw)
    if place := database_at(directory):
        from latewood.cli.database_reading import cat_database  # noqa: PLC0415 - LMDB and Arrow, only for a store

        cat_database(place, start, stop, since, chosen, **of_database)
        return ExitCode.OK
    refuse_options(of_database, "a database of a store")
    with open_to_read(directory) as log:
        first = start if since is None else log.find_timestamp(since)
        print_records(_batches(log, first, stop), chosen)
    return ExitCode.OK


def _batches(log: Queue, start: int | None, stop: int | None) -> Iterator[list[Record]]:
    """Yield batches as the log hands them out, so that all is printed that comes before a damaged record."""
    first = log.first_sequence if start is None else start
    if first > log.next_sequence:
        return
    stream = log.stream(first)
    try:
        while left := READ_RECORDS_MAX if stop is None else min(READ_RECORDS_MAX, max(0, stop - stream.sequence)):
            if not (records := stream.read(left)):
                return
            yield records
    finally:
        stream.close()
