"""Where tasks make new chunks: in the database's directory or, on an engine that may do a task twice, in a staging one.

A staging directory is of one attempt at one job.  Its tasks make files there, and make no directory; whoever holds the
lease moves those that count to where chunks are, and removes the directory with all others.  So a task that was done
twice, or goes on when nobody waits for it, leaves nothing: what it makes goes with the directory, and when that is gone
it can make nothing any more.  One that a driver left which died is an orphan: the next job removes it.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from latewood.errors import StorageError
from latewood.jobs.handlers.attempt import Attempt
from latewood.types import JobId

if TYPE_CHECKING:
    from latewood.archive.chunk_writer import Chunk

STAGED_STEPS: Final = ("make staging", "adopt chunk", "remove staging")
"""What comes on top on an engine that is staged."""

_NAME: Final = re.compile(r"([0-9a-f]{16})-[0-9]+\.staging")
_REMOVALS_MAX: Final = 64
"""How often a directory is removed that tasks put files into meanwhile; each can do that but once or twice."""


@contextmanager
def workplace(attempt: Attempt) -> Iterator[Path]:
    """Yield the directory where this attempt's tasks make chunks; what is left in a staging one goes at the end."""
    if not attempt.engine.is_staged:
        yield attempt.db.chunk_dir
        return
    directory = attempt.db.chunk_dir / f"{attempt.job_id:016x}-{attempt.context.lease.attempt}.staging"
    attempt.step("make staging")
    attempt.fs.make_directory(directory)
    try:
        yield directory
    finally:
        attempt.step("remove staging")
        remove_staging(attempt, directory)


def adopted(attempt: Attempt, chunk: "Chunk") -> "Chunk":
    """Return a chunk once it is, durably, where chunks of the database are."""
    path = attempt.db.chunk_dir / chunk.path.name
    if chunk.path == path:
        return chunk
    attempt.step("adopt chunk")
    attempt.fs.rename(chunk.path, path)
    attempt.fs.sync_directory(path.parent)
    return chunk._replace(path=path)


def remove_staging(attempt: Attempt, directory: Path) -> None:
    """Remove a staging directory, durably, also while a task that nobody waits for still writes there.

    Raises:
        StorageError: it cannot be removed.
    """
    for _ in range(_REMOVALS_MAX):
        with suppress(StorageError):  # A file came, or went, meanwhile.
            attempt.fs.remove_tree(directory)
        if not attempt.fs.exists(directory):
            break
    else:
        attempt.fs.remove_tree(directory)
    attempt.fs.sync_directory(directory.parent)


def job_of_staging(name: str) -> JobId | None:
    """Return the job whose staging directory has this name; None if it is none.  Pure."""
    found = _NAME.fullmatch(name)
    return int(found[1], 16) if found else None
