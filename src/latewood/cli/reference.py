"""The reference page of the command line, made from the commands themselves.

`python -m latewood.cli.reference > docs/reference/cli.md` writes it; a test says when it is out of date.
"""

import inspect
import sys
from collections.abc import Iterator
from typing import Final

import click

from latewood.cli.main import COMMANDS, program

_FRONT: Final = """\
# The command line

This page is made by `python -m latewood.cli.reference`: edit the commands, not the page.

## Conventions

**Output.** `--format table|json|jsonl|csv`; without it a table on a terminal and JSON Lines in a pipe. In all but the
table numbers stay numbers, and a name ends in its unit: `size_bytes`, `created_at_ns` (nanoseconds since 1970),
`behind_ms`. A payload that is UTF-8 is printed as text under `payload`, any other as base64 under `payload_base64`.
Results go to stdout; messages and progress go to stderr, progress only to a terminal.

**Sizes** are bytes, or have a unit: `64KiB` and `64K` count in 1024, `64KB` in 1000. **Durations** have a unit:
`250ms`, `30s`, `1h30m`, `7d`. **Times** are ISO 8601, UTC where no zone is given (`2026-01-31`,
`2026-01-31T12:00:00+02:00`), a duration (`2h`: two hours ago), `now`, or plain nanoseconds since 1970.

**Deleting.** What deletes or overwrites asks first. `--yes` goes ahead without asking, `--dry-run` only looks; where
there is no terminal to ask on, one of the two must be given.

**Stores.** Where a command takes the directory of a log, most take a database of a store too, written as
`STORE/DATABASE`: `latewood cat lake/clicks`. One process at a time has a store open to write; what only looks works
beside it.

**Errors** are one line on stderr that says what to do next. `LATEWOOD_DEBUG=1` shows where one comes from.

| exit code | meaning |
| ---: | --- |
| 0 | fine, also when whoever reads the output closes the pipe |
| 1 | failed |
| 2 | usage: the call, or its input, is wrong |
| 3 | not found: no such log, store, database, segment or reader |
| 4 | corruption found |
| 5 | locked: another process writes the log or the store, or has the reader open |
| 130 | interrupted |

## Commands
"""


def reference() -> str:
    """Return the whole page."""
    index = [f"| [`{name}`](#latewood-{name}) | {help_line} |" for name, help_line in COMMANDS.items()]
    lines = [_FRONT, "| command | what it does |", "| --- | --- |", *index]
    context = click.Context(program, info_name="latewood")
    for name in COMMANDS:
        command = program.get_command(context, name)
        assert command is not None
        lines += _section(command, click.Context(command, parent=context, info_name=name))
    return "\n".join(lines) + "\n"


def _section(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"\n## {context.command_path}\n" if context.parent and not context.parent.parent else _subheading(context)
    yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    yield inspect.cleandoc(command.help or "")
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    if options:
        yield "\n| option | meaning |\n| --- | --- |"
        yield from (_row(option) for option in options)
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from _section(child, click.Context(child, parent=context, info_name=name))


def _subheading(context: click.Context) -> str:
    return f"\n### {context.command_path}\n"


def _row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in sorted([*option.opts, *option.secondary_opts], key=len))
    value = "" if option.is_flag else f" {_value(option)}"
    default = f"  [default: {option.default}]" if option.show_default else ""
    return f"| {names}{value} | {option.help}{default} |".replace("  [", " [")


def _value(option: click.Option) -> str:
    """Return what stands for an option's value."""
    if isinstance(option.type, click.Choice):
        return "`" + r"\|".join(map(str, option.type.choices)) + "`"
    return option.metavar or option.type.name.removesuffix(" range").upper()


if __name__ == "__main__":
    sys.stdout.write(reference())
