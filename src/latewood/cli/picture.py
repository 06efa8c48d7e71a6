"""`latewood picture PATH`: draw a log or a store, with its tiers and readers, as an SVG file."""

import time
from pathlib import Path

import click

from latewood.cli.arguments import PATH
from latewood.cli.errors import ExitCode, say
from latewood.errors import UsageError

_MARK = "<svg "
_STDOUT = Path("-")


@click.command()
@click.argument("path", metavar="STORE[/DATABASE]|LOG", type=PATH)
@click.option("-o", "--output", metavar="FILE", type=PATH, required=True, help="Where the picture goes; - is stdout.")
def picture(path: Path, output: Path) -> int:
    """Draw a store, one of its databases or a log as an SVG file, which every browser shows.

    A bar for each shard, along its sequences: what is archived, what is in local chunks, what is in sealed segments,
    and the open end.  Above it every reader, and how far behind it is.  Works beside a writer.  A FILE that holds
    something else than a picture is not overwritten.
    """
    from latewood.cli.picture_look import look  # noqa: PLC0415 - LMDB and Arrow, not for the help
    from latewood.cli.picture_svg import draw  # noqa: PLC0415 - as above

    text = draw(look(path, time.time_ns()))
    if output == _STDOUT:
        click.echo(text, nl=False)
        return ExitCode.OK
    _check_is_free(output)
    output.write_text(text, encoding="utf-8")
    say(f"drew {path} to {output}")
    return ExitCode.OK


def _check_is_free(output: Path) -> None:
    """Refuse to overwrite what is no picture.

    Raises:
        UsageError: it is something else.
    """
    if not output.exists():
        return
    if not output.is_file() or not output.read_bytes().startswith(_MARK.encode()):
        raise UsageError(f"{output} is there, and is no picture; name another file")
