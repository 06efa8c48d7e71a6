"""`latewood seal DIR`: seal the open segment and begin the next."""

from pathlib import Path

import click

from latewood.cli.arguments import directory
from latewood.cli.errors import ExitCode, say
from latewood.cli.opening import open_to_change
from latewood.cli.output import Output, output_format
from latewood.cli.store_argument import database_at


@click.command()
@directory
@output_format
def seal(directory: Path, output: Output) -> int:
    """Seal the open segment of the log in DIR and begin the next.

    A sealed segment never changes again: it can be copied, and once nobody needs it, deleted.  Nothing happens if
    there are no records in it.

    DIR may also be a database, named as STORE/DATABASE: then the open segment of each shard is sealed.
    """
    if place := database_at(directory):
        from latewood.cli.database_logs import seal_database  # noqa: PLC0415 - LMDB, only for a store

        return seal_database(place, output)
    with open_to_change(directory) as log:
        sealed = log.seal()
    if sealed is None:
        say("the open segment has no records: nothing to seal")
    output.show({"segment_id": sealed})
    return ExitCode.OK
