"""How the program ends: exit codes, and errors as one line on stderr that says what to do next."""

import re
from enum import IntEnum

import click

from latewood.errors import (
    ChangesLost,
    CorruptError,
    DataLost,
    LatewoodError,
    Locked,
    NotFoundError,
    Owned,
    PayloadTooLarge,
    ReadOnlyError,
    RecordTooLarge,
    UsageError,
)


class ExitCode(IntEnum):
    """What a caller can tell from the program's end."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CORRUPT = 4
    LOCKED = 5
    INTERRUPTED = 130


def exit_code_of(error: LatewoodError) -> ExitCode:
    """Return the code for an error of the library."""
    match error:
        case NotFoundError():
            return ExitCode.NOT_FOUND
        case CorruptError():
            return ExitCode.CORRUPT
        case Locked():
            return ExitCode.LOCKED
        case UsageError() if not isinstance(error, ReadOnlyError):
            return ExitCode.USAGE
        case _:
            return ExitCode.FAILED


def explain(error: LatewoodError) -> str:
    """Return what happened and what to do next, in the words of the command line."""
    match error:
        case Locked() if error.path.parent.name != "readers":
            holder = f"process {error.pid}" if error.pid else "another process"
            text = f"{error.path.parent} is being written by {holder}; wait until it ends, or stop it"
        case RecordTooLarge() if not isinstance(error, PayloadTooLarge):
            text = (
                f"a payload of {error.payload_bytes:,} bytes does not fit a segment of this log, which holds at most "
                f"{error.payload_bytes_max:,}; split it, or give a larger --segment-bytes"
            )
        case DataLost() if not isinstance(error, ChangesLost):  # Those are of the catalog, and no records.
            text = (
                f"records {error.start} to {error.stop - 1} are gone; to go on without them read with `--start "
                f"{error.stop}`, or move the reader with `latewood readers seek DIR NAME --sequence {error.stop}`"
            )
        case Owned():
            text = str(error).partition("; to read it")[0]
        case _:
            text = str(error)
    return "; ".join([text, *getattr(error, "__notes__", [])])


def explain_usage(error: click.ClickException) -> str:
    """Return a complaint about the command line itself, and where its help is."""
    message = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{message}; see `{context.command_path} --help`" if context else message


def say(message: str) -> None:
    """Tell the user something that is not the command's result: one line on stderr."""
    click.echo("latewood: " + re.sub(r"\s*\n\s*", " ", message), err=True)
