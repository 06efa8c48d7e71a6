"""`latewood rekey STORE [DATABASE]...`: encrypt chunks with another key."""

from pathlib import Path

import click

from latewood.cli.output import Output
from latewood.cli.store_argument import located
from latewood.cli.store_jobs import job_options


@click.command()
@job_options
@click.option("--key-id", metavar="ID", help="Encrypt with this key from now on.  [default: the one that is set]")
@click.option("--plain", is_flag=True, help="Encrypt no more from now on.")
def rekey(
    path: Path,
    names: tuple[str, ...],
    output: Output,
    *,
    wait: bool,
    workers: int | None,
    key_id: str | None,
    plain: bool,
) -> int:
    """Enqueue a rekey of these databases, or of all: chunks of another key are written anew with the database's.

    What was replaced stays for a grace period, for those who read it, and if it is archived until the new chunk is:
    `latewood archive`, then `latewood retain`.  When `latewood status` shows no chunk of the old key any more, that may
    be forgotten.  --key-id and --plain set what the databases that are named encrypt with, durably and first.
    """
    from latewood.cli.store_job_run import Work, run_work  # noqa: PLC0415 - LMDB, not for the help
    from latewood.cli.store_keys import key_setter  # noqa: PLC0415 - as above

    if plain and key_id is not None:
        message = "give --key-id or --plain, not both"
        raise click.UsageError(message, click.get_current_context())
    chosen = located(path, names).names
    if (plain or key_id is not None) and not chosen:
        message = "name the databases that --key-id or --plain is for, as in `latewood rekey lake clicks --key-id k2`"
        raise click.UsageError(message, click.get_current_context())
    first = key_setter(chosen, key_id) if plain or key_id is not None else None
    return run_work(path, names, [Work("rekey")], output, wait=wait, workers=workers, check=first)
