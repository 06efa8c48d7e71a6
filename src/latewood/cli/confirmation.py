"""`--dry-run` and `--yes`, which every command that deletes or overwrites has."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def confirmed(function: F) -> F:
    """Give a command `dry_run` and `yes`; without either it is refused where nobody can be asked."""
    dry_run = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
    yes = click.option("--yes", "-y", is_flag=True, help="Do not ask.", callback=_check_can_ask)
    return dry_run(yes(function))


def ask(question: str, *, yes: bool) -> bool:
    """Return whether to go ahead."""
    return yes or click.confirm(question, err=True)


def _check_can_ask(context: click.Context, _: click.Parameter, yes: bool) -> bool:  # noqa: FBT001 - click's signature
    if not yes and not context.params.get("dry_run") and not sys.stdin.isatty():
        message = "there is no terminal to ask on: give --yes to go ahead, or --dry-run to look first"
        raise click.UsageError(message, context)
    return yes
