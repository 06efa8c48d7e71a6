"""Opening a catalog: the lock, a look from outside, the environment, migrations, the session's sentinel.

Order, to write: 1. lock, so that nobody else writes, and hold the directory open, because LMDB goes by its path.
2. look at the file without mapping it; if it is suspect, have a child process read all of it.  3. open the environment,
see that the directory is still the same, and sync it, so that a new file's name is durable.  4. migrate.  5. store that
a session has begun and is not clean, before anything else is written.
"""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from latewood.catalog.check import check_file
from latewood.catalog.env import LMDBEnv
from latewood.catalog.migrate import check_versions, migrate
from latewood.catalog.options import CatalogOptions
from latewood.catalog.preflight import look_at
from latewood.catalog.tables.runtime_state import RUNTIME_STATE, SESSION, RuntimeRecord
from latewood.clock import Clock
from latewood.errors import CatalogCorrupted, NotFoundError, UsageError
from latewood.format.store_layout import CATALOG_NAME
from latewood.fs import FileSystem, Lock

LOCK_SUFFIX: Final = ".writer"
_MS: Final = 1_000_000


def open_env(
    fs: FileSystem, path: Path, options: CatalogOptions, clock: Clock, *, writable: bool
) -> tuple[LMDBEnv, Lock | None, FileSystem]:
    """Return the environment, the lock if it is to be written, and the disk with the catalog's directory held open.

    Raises:
        Locked: another has it open to write.
        NotFoundError, ReadOnlyError, CatalogCorrupted, UnsupportedVersion: it cannot be opened so.
        DirectoryReplaced: the directory was replaced meanwhile: LMDB may have opened another file.
    """
    with ExitStack() as undo:
        lock = None
        if writable:
            fs.make_directory(path.parent)
            if path.is_dir():
                message = f"{path} is a directory; a catalog is a file"
                raise UsageError(message)
        if fs.exists(path.parent):
            fs = fs.rooted(path.parent)
            undo.callback(fs.close)
        if writable:
            # The directory is locked too if it is a store's: other catalogs may share theirs with other files.
            lock = fs.lock_root(path.with_name(path.name + LOCK_SUFFIX), whole=path.name == CATALOG_NAME)
            undo.callback(lock.close)
        state = look_at(fs, path)
        if not state.file_bytes and not writable:
            message = f"there is no catalog at {path}; opening it to write makes one"
            raise NotFoundError(message)
        if state.is_short:
            _check_first(path)
        env = LMDBEnv(path, options, writable=writable, file_bytes=state.file_bytes)
        undo.callback(env.close)
        fs.check_root()
        if writable:
            fs.sync_directory(path.parent)
            migrate(env, clock.now_ns() // _MS)
        else:
            env.read(check_versions)
        undo.pop_all()
        return env, lock, fs


def session_begun(env: LMDBEnv, clock: Clock, *, writable: bool) -> RuntimeRecord:
    """Return how the session before this one ended, and note that this one has begun."""
    before = env.read(lambda rows: rows.get(RUNTIME_STATE, SESSION)) or RuntimeRecord()
    if writable:
        own = RuntimeRecord(
            clean=False, pid=os.getpid(), opened_at_ms=clock.now_ns() // _MS, sessions=before.sessions + 1
        )
        with env.writing() as rows:
            rows.put(RUNTIME_STATE, SESSION, own)
    return before


def session_ended(env: LMDBEnv, clock: Clock) -> RuntimeRecord:
    """Return the sentinel of a clean end."""
    own = env.read(lambda rows: rows.get(RUNTIME_STATE, SESSION)) or RuntimeRecord()
    return replace(own, clean=True, closed_at_ms=clock.now_ns() // _MS)


def _check_first(path: Path) -> None:
    report = check_file(path)
    if not report.is_sound:
        reason = f"the file is shorter than it should be, and {report.summary}"
        raise CatalogCorrupted(reason, path, "", b"")
