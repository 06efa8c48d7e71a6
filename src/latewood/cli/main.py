"""The `latewood` command: finds the module of a subcommand when it is called, and turns every error into one line."""

import os
import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final, NoReturn

import click

from latewood.cli.errors import ExitCode, exit_code_of, explain, explain_usage, say
from latewood.cli.log_lines import warnings_as_lines
from latewood.errors import LatewoodError

COMMANDS: Final = {
    "init": "Make an empty log.",
    "append": "Append lines, or JSON records, from standard input.",
    "cat": "Print records, from the oldest on.",
    "tail": "Print the last records, and with -f those that come.",
    "info": "Show a log in figures.",
    "segments": "List the segments of a log.",
    "inspect": "Show what one segment file says about itself.",
    "readers": "List, move and remove named readers.",
    "cleanup": "Delete the segments that nobody needs.",
    "seal": "Seal the open segment and begin the next.",
    "verify": "Check that a log or a store is sound.",
    "rebuild": "Make a lost or corrupt manifest or catalog again.",
    "db": "Make, list, fork and let go of the databases of a store.",
    "status": "Show a store on one screen.",
    "picture": "Draw a log or a store, with its tiers and readers, as an SVG file.",
    "chunks": "List the chunks of a store, and look into them.",
    "flush": "Make chunks of what is in the logs of a store.",
    "compact": "Make few large chunks of many small ones.",
    "rekey": "Encrypt chunks with another key.",
    "archive": "Copy chunks to the archive, and prove the copies.",
    "evict": "Remove local files of chunks that are archived.",
    "hydrate": "Bring archived chunks back as local files.",
    "retain": "Let go of chunks that the retention of a database does not keep.",
    "work": "Run the jobs of a store.",
    "config": "Show the settings of a store.",
    "jobs": "List, run, retry, cancel and watch jobs.",
    "cluster": "Set a cluster up for a trial, look at it, change its members.",
    "catalog": "Look at a catalog, and check it.",
    "serve": "Run one node of a cluster.",
    "doctor": "Say what is installed, and what the disk is like.",
    "spark": "Say whether Spark can work here.",
    "bench": "Measure how fast a log is on this machine.",
}
"""Every command and its first line of help, so that `latewood --help` imports none of them."""


class Program(click.Group):
    """The commands, each in the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, in the order in which a user meets them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"latewood.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, or suggest the one that was meant."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            close = " or ".join(f"`{one}`" for one in get_close_matches(name, COMMANDS, 2))
            message = f"there is no command {name!r}" + (f"; perhaps you meant {close}" if close else "")
            raise click.UsageError(message, ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands for `--help`."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; Ctrl-C ends it quietly, and so does whoever has read enough of its output."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED
        except BrokenPipeError:
            return ExitCode.OK

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run the program to its end."""
        extra["standalone_mode"] = False
        _open_missing_streams()
        with warnings_as_lines():
            code = _run(lambda: super(Program, self).main(*args, **extra))
        try:
            sys.stdout.flush()
        except OSError:  # It was told, or nobody is there to be told.
            _forget_stdout()
        sys.exit(code)


def _run(program: Callable[[], Any]) -> int:
    """Return the exit code, after telling what went wrong."""
    try:
        return int(program() or 0)
    except click.Abort:
        return ExitCode.INTERRUPTED
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # A group alone; before click 8.2 that is no error.
            click.echo(str(error), err=True)
            return ExitCode.USAGE
        if os.environ.get("LATEWOOD_DEBUG"):
            raise
        code, message = _outcome(error)
        say(message)
        return code


def _outcome(error: Exception) -> tuple[int, str]:
    """Return an error's exit code, and what to say about it."""
    match error:
        case click.ClickException():
            return error.exit_code, explain_usage(error)
        case LatewoodError():
            return exit_code_of(error), explain(error)
        case OSError():
            return ExitCode.FAILED, f"{error.filename or 'standard input or output'}: {error.strerror or error}"
        case _:
            reason = f"{type(error).__name__}: {error}"
            return ExitCode.FAILED, f"unexpected {reason}; this is a bug: LATEWOOD_DEBUG=1 shows where it is"


def _open_missing_streams() -> None:
    """Open standard streams that the caller closed: else a file of the log would get their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _forget_stdout() -> None:
    """Let the interpreter flush what is left of stdout to nowhere: whoever read it has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's signature
    if wanted:
        from latewood.cli.version import package_version  # noqa: PLC0415 - only --version pays for it

        click.echo(f"latewood {package_version()}")
        context.exit()


@click.group(name="latewood", cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Say which.")
def program() -> None:
    """Look at, fill and mend durable logs, and stores of them.

    Exit codes: 0 fine, 1 failed, 2 usage, 3 not found, 4 corruption found, 5 locked, 130 interrupted.
    """


def main() -> NoReturn:
    """Run the `latewood` command."""
    program.main(prog_name="latewood")
