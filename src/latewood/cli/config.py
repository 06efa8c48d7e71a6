"""`latewood config`: show the settings of a store."""

from pathlib import Path

import click

from latewood.cli.arguments import PATH
from latewood.cli.errors import ExitCode
from latewood.cli.output import Output, output_format
from latewood.cli.place import Kind, kind_of, no_store

_COLUMNS = ("key", "value", "origin", "variable")
_BRIEF = ("key", "value", "origin")


@click.group()
def config() -> None:
    """Show the settings of a store."""


@config.command()
@click.argument("path", metavar="STORE", type=PATH)
@click.option("--set-only", is_flag=True, help="Leave out what nobody set.")
@output_format
def show(path: Path, output: Output, *, set_only: bool) -> int:
    """Print each setting of STORE, its value, and where that came from; secrets only as `set`.

    The environment counts before latewood.toml in the store's directory, and that before the default.  The store need
    not be there yet.
    """
    if kind_of(path) not in (Kind.STORE, Kind.DIRECTORY, Kind.NOTHING):
        raise no_store(path)
    from latewood.fs import PosixFS  # noqa: PLC0415 - as below
    from latewood.runtime.opening import load_settings  # noqa: PLC0415 - LMDB and Arrow, not for the help

    settings = load_settings(path, PosixFS())
    rows = [one for one in settings.shown if not set_only or one.origin != "default"]
    output.rows(_COLUMNS, rows, brief=_BRIEF)
    return ExitCode.OK
