"""Continuation: the log of a shard that is behind its chunks, or gone, is replaced by one that goes on behind them.

What is lost with the newer copy of the log stays lost: the caller has accepted that.  Nothing is removed: the
directory that was there gets another name.  The new log begins behind every sequence that the store knows to have been
given out, so that none is given out twice: by its chunks, by the log that was there, by the positions of its readers.
It is the log that the catalog names, in a new life: a position of an older life beyond its beginning is refused.
Order of writes: docs/crash-safety.md, "continuation of a shard"
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from latewood.archive.names import parse_file_name
from latewood.catalog.tables import WalStateKey, WalStateRecord
from latewood.errors import CatalogBehind, LogBehind, UsageError
from latewood.fs import FileSystem
from latewood.log.layout import Layout
from latewood.log.reach import reach_of
from latewood.runtime.database import Database
from latewood.runtime.shard import Shard
from latewood.runtime.shard_log import make_log
from latewood.runtime.site import DatabaseSite, StoreSite

_MS: Final = 1_000_000
_LOST_MAX: Final = 1024
"""Losses that the row of a shard remembers; what is older is called damage by a scrub again."""


class Continuation(NamedTuple):
    """What becomes, or would become, of the log of a shard."""

    shard: int
    problem: str
    """What is wrong with the log that is there."""
    log_end: int | None
    """Where that log ends; None: it is not there."""
    covered: int
    """The chunks of the shard have all records before this sequence, as far as retention kept them."""
    first_sequence: int
    """With this sequence the new log begins; what lies between is lost."""
    identity: bytes | None = None
    """Which log the shard's is, by the catalog or else by its chunks, or that which is there; None: nothing says."""
    kept: Path | None = None
    """What was there is here now; None: nothing was, or nothing was done."""


def continuations(store: StoreSite, database: Database, site: DatabaseSite) -> list[Continuation]:
    """Return what would become of the shards of a database whose logs are behind their chunks, or gone.

    Raises:
        CatalogBehind: the catalog is what is older, and no log must be given up for that.
    """
    found = [(shard, shard.behind()) for shard in database.shards]
    for _, behind in found:
        if isinstance(behind, CatalogBehind):
            raise behind
    return [_planned(store.fs, shard, behind, database, site) for shard, behind in found if behind is not None]


def continue_shard(store: StoreSite, database: Database, site: DatabaseSite, planned: Continuation) -> Continuation:
    """Put a new log in the place of one that is behind; return what was done.  Durable on return.

    Raises:
        UsageError: the log is not behind any more; in its place a new one would give its numbers out again.
        Locked: a process has that log open to write.
    """
    if database.shards[planned.shard].behind() is None:
        name = f"shard {planned.shard} of {database.name!r}"
        raise UsageError(f"the log of {name} goes as far as its chunks: it is left as it is")
    path = site.layout.shard(planned.shard)

    def make(new: Path) -> None:
        make_log(store, new, site.record, planned.first_sequence, planned.identity, is_continued=True)
        _note(store, site, planned)

    return planned._replace(kept=replace_log(store.fs, path, make, store.clock.now_ns() // _MS))


def replace_log(fs: FileSystem, path: Path, make: Callable[[Path], None], now_ms: int) -> Path | None:
    """Put what `make` makes at another path in the place of a log; return what the old one is called now, if any."""
    new, kept = path.with_name(f"{path.name}.new"), path.with_name(f"{path.name}.{now_ms}.old")
    lock = fs.lock(Layout(path).lock) if fs.exists(path) else None
    try:
        fs.remove_tree(new)  # Of a run that was cut.
        make(new)  # 1. The new log, and whatever must be known before it counts.
        if lock is not None:
            fs.rename(path, kept)  # 2. The old one, whole, under another name.
            fs.sync_directory(path.parent)
        fs.rename(new, path)  # 3. The new one in its place.
        fs.sync_directory(path.parent)
    finally:
        if lock is not None:
            lock.close()
    return None if lock is None else kept


def _planned(fs: FileSystem, shard: Shard, behind: LogBehind, database: Database, site: DatabaseSite) -> Continuation:
    reach = reach_of(fs, Layout(behind.path))
    positions = [one.sequence for one in database.readers().positions_in(shard.number)]
    files = _sequences_of_files(fs, site.chunk_dir, shard.number)
    covered, log_end = shard.end(), None if reach is None else reach.end
    first = max(covered, log_end or 0, *positions, *files)
    identity = site.record.log_identity(shard.number) or shard.chunk_log() or (reach.identity if reach else None)
    return Continuation(shard.number, behind.reason, log_end, covered, first, identity)


def _sequences_of_files(fs: FileSystem, directory: Path, shard: int) -> Iterator[int]:
    """Yield where the chunk files of a shard end, those too that no row names: each may be an only copy."""
    for file_name in fs.list(directory):
        name = parse_file_name(file_name)
        if name is not None and name.shard == shard:
            yield name.sequence_max + 1


def _note(store: StoreSite, site: DatabaseSite, planned: Continuation) -> None:
    """Have the catalog know where the new log begins, and what is lost before it."""
    key, first = WalStateKey(site.db_id, planned.shard), planned.first_sequence
    state = store.catalog.read(lambda view: view.wal_state(*key)) or WalStateRecord()
    applied = state.last_applied_sequence
    lost = ((applied, first),) if applied < first else ()
    txn = store.catalog.begin_write()
    txn.put_wal_state(
        key,
        replace(
            state,
            last_applied_sequence=max(applied, first),
            lost=(*state.lost, *lost)[-_LOST_MAX:],
            updated_at_ms=store.clock.now_ns() // _MS,
        ),
    )
    txn.commit()
