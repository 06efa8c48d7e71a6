"""`latewood rebuild STORE/DATABASE`: the logs of shards that end before their chunks do, or are gone."""

from latewood.cli.confirmation import ask
from latewood.cli.errors import ExitCode, say
from latewood.cli.output import Output
from latewood.cli.store_argument import DatabasePath, find_database, open_store
from latewood.runtime.continuation import Continuation


def rebuild_database(place: DatabasePath, output: Output, *, dry_run: bool, yes: bool, accept_loss: bool) -> int:
    """Do what `latewood rebuild` says of a database."""
    with open_store(place.root, "r" if dry_run else "w") as store:
        find_database(store, place.name)
        found = store.logs_behind(place.name)
        done = found and accept_loss and not dry_run
        if done and not ask(_question(found), yes=yes):
            say("nothing was changed")
            return ExitCode.FAILED
        rows = [store.continue_log(place.name, one) for one in found] if done else found
    output.rows(Continuation._fields, [_cells(one) for one in rows])
    if not found:
        say(f"there is nothing to do: every log of {place.name!r} goes as far as its chunks")
        return ExitCode.OK
    for one in rows:
        say(_told(one, place, done=bool(done)))
    if not done:
        say("nothing was changed; restore the newer copies of these logs, or go on without them with --accept-loss")
    return ExitCode.OK if done else ExitCode.CORRUPT


def _cells(one: Continuation) -> tuple[object, ...]:
    fields = one._asdict()
    return tuple((fields | {"identity": one.identity.hex() if one.identity else None}).values())


def _question(found: list[Continuation]) -> str:
    shards = ", ".join(str(one.shard) for one in found)
    return f"Give up what only the newer logs of shards {shards} had, and go on behind the chunks?"


def _told(one: Continuation, place: DatabasePath, *, done: bool) -> str:
    if not done:
        return f"shard {one.shard}: {one.problem}; with --accept-loss its next record gets {one.first_sequence}"
    kept = f"; what was there is {one.kept} now, and `latewood cat {one.kept}` reads it" if one.kept else ""
    return (
        f"shard {one.shard}: its next record gets {one.first_sequence}{kept}; check with `latewood verify {place.root}`"
    )
