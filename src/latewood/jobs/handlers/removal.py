"""Files and objects of chunks that go: only if no row of any database needs them.

A fork shares files and objects with the database that it came from.  Forks take live rows only, and a row is not live
any more, durably, before its file or object goes: so whoever is the last to let go sees that it is.
"""

from collections.abc import Iterable

from latewood.archive.tier import Tier
from latewood.catalog.tables import ChunkRecord, RemoteArchived
from latewood.jobs.handlers.attempt import Attempt
from latewood.jobs.handlers.chunks import has_file, object_of
from latewood.tasks import removal


def is_file_shared(attempt: Attempt, record: ChunkRecord) -> bool:
    """Say whether another database's row claims the local file."""
    others = attempt.db.sharers(record.file_name)
    return any(has_file(other) and not other.purging for other in others)


def is_object_shared(attempt: Attempt, record: ChunkRecord, key: str) -> bool:
    """Say whether another database's row names the object, or may come to: a file that it shares has the same key."""
    others = [other for other in attempt.db.sharers(record.file_name) if not other.purging]
    return any((found.key if (found := object_of(other)) else key) == key for other in others)


def removable_file(attempt: Attempt, record: ChunkRecord) -> str | None:
    """Return the path of a chunk's local file, if no other database claims it."""
    return None if is_file_shared(attempt, record) else str(attempt.db.chunk_path(record))


def removable_objects(attempt: Attempt, record: ChunkRecord, keys: Iterable[str]) -> tuple[str, ...]:
    """Return those keys of a chunk's objects that no other database needs."""
    return tuple(key for key in keys if not is_object_shared(attempt, record, key))


def remove_file(attempt: Attempt, record: ChunkRecord) -> None:
    """Remove a chunk's local file durably, if it is there and no other database claims it."""
    path = attempt.db.chunk_path(record)
    if is_file_shared(attempt, record) or not attempt.fs.exists(path.parent):
        return
    removal.remove_file(path, attempt.fs, attempt.step)


def remove_object(attempt: Attempt, tier: Tier, record: ChunkRecord, key: str) -> None:
    """Remove a chunk's object, if it is there and no other database needs it."""
    if not is_object_shared(attempt, record, key):
        attempt.step("remove object")
        tier.delete(key)


def is_only_remote(record: ChunkRecord) -> bool:
    """Say whether the row claims no local file, but an object."""
    return isinstance(record.residency, RemoteArchived)
