"""`latewood info DIR`: a log, or a database of a store, in figures."""

from dataclasses import asdict
from pathlib import Path

import click

from latewood.cli.arguments import directory
from latewood.cli.errors import ExitCode
from latewood.cli.identity import identity_fields
from latewood.cli.opening import open_to_read
from latewood.cli.output import Output, output_format
from latewood.cli.store_argument import database_at
from latewood.log.inheritance import inherited_options
from latewood.log.layout import Layout
from latewood.log.stats import allocated_bytes
from latewood.queue import Queue
from latewood.queue.listing import list_readers


@click.command()
@directory
@output_format
def info(directory: Path, output: Output) -> int:
    """Show the log in DIR in figures: records, segments, bytes, readers, and which log it is.

    `size` is what is written; `allocated` is what the files take on disk, with the room that the open segment, and the
    one prepared to follow it, reserve.

    DIR may also be a database, named as STORE/DATABASE; `latewood db info` says the same of it.
    """
    if place := database_at(directory):
        from latewood.cli.db_actions import show_database  # noqa: PLC0415 - LMDB, only for a store

        return show_database(place, output)
    with open_to_read(directory) as log:
        output.show(_figures(log))
    return ExitCode.OK


def _figures(log: Queue) -> dict[str, object]:
    stats, layout = log.stats(), Layout(log.path)
    allocated = allocated_bytes(log.file_system, layout, log.view().manifest)
    fields: dict[str, object] = {"path": stats.path, "record_count": stats.record_count}
    fields |= {"size_bytes": stats.size_bytes, "allocated_bytes": allocated} | asdict(stats)
    fields["first_timestamp_ns"] = log.read(stats.first_sequence).timestamp_ns if stats.record_count else None
    fields["last_timestamp_ns"] = log.read(stats.next_sequence - 1).timestamp_ns if stats.record_count else None
    fields |= inherited_options(log.file_system, layout)
    fields |= identity_fields(log.identity)
    fields["readers"] = [reader.name for reader in list_readers(log)]
    return fields
