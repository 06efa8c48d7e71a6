"""`latewood rebuild --catalog STORE`: make a lost or damaged catalog again."""

from pathlib import Path
from typing import TYPE_CHECKING

from latewood.cli.confirmation import ask
from latewood.cli.errors import ExitCode, say
from latewood.cli.output import Output
from latewood.cli.progress import progress
from latewood.runtime.rebuild import DatabaseReport
from latewood.runtime.remake import check_is_store, remake_catalog

if TYPE_CHECKING:
    from latewood.cli.engine_option import EngineChoice


def rebuild_store(root: Path, output: Output, choice: "EngineChoice", *, dry_run: bool, yes: bool) -> int:
    """Do what `latewood rebuild --catalog` says."""
    check_is_store(root)
    question = f"Make a new catalog of {root}, and keep what is there under another name?"
    if not dry_run and not ask(question, yes=yes):
        say("nothing was written")
        return ExitCode.FAILED
    with progress("rebuild") as report:
        remade = remake_catalog(root.absolute(), dry_run=dry_run, engine=choice.engine(root), progress=report)
    if remade.kept is not None:
        say(f"what was there is {remade.kept} now")
    output.rows(DatabaseReport._fields, remade.databases)
    for found in remade.databases:
        for problem in found.problems:
            say(f"{found.name}: {problem}")
    if not remade.is_found:
        say("no database says what it is: nothing was written; restore the `database.json` of each from a copy")
    return ExitCode.OK if remade.is_whole else ExitCode.CORRUPT
