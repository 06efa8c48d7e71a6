"""`latewood init DIR`: make an empty log."""

from pathlib import Path

import click

from latewood.cli.arguments import directory, segment_options
from latewood.cli.errors import ExitCode, say
from latewood.cli.opening import is_log, open_to_append
from latewood.cli.place import check_free


@click.command()
@directory
@segment_options
@click.option("--if-missing", is_flag=True, help="Do nothing, and succeed, if there is one already.")
def init(directory: Path, segment_bytes: int | None, index_interval: int | None, *, if_missing: bool) -> int:
    """Make an empty log in DIR.

    The options are kept in the log: `append` goes on with them.
    """
    if is_log(directory):
        say(f"there is a log at {directory} already")
        return ExitCode.OK if if_missing else ExitCode.FAILED
    check_free(directory, "`latewood db create` makes one")
    open_to_append(directory, segment_bytes_max=segment_bytes, index_interval=index_interval).close()
    say(f"made an empty log at {directory}")
    return ExitCode.OK
