"""Make the catalog of a store again, and put it in place.

Order: 1. Nobody else writes: the store's lock.  2. The new catalog, under another name, whole and closed.  3. What was
there gets a name of its own.  4. The new one gets the store's name.  A cut before 4 leaves no catalog, and it can be
made again; nothing else is ever changed.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from latewood.catalog import Catalog, check_file
from latewood.catalog.opening import LOCK_SUFFIX
from latewood.clock import SystemClock
from latewood.errors import NotFoundError, UsageError
from latewood.format.store_layout import StoreLayout
from latewood.fs import PosixFS
from latewood.runtime.archive_identity import check_directory, known_archives
from latewood.runtime.opening import load_settings, open_archive, open_keys
from latewood.runtime.rebuild import DatabaseReport, Progress, rebuild_catalog

if TYPE_CHECKING:
    from latewood.tasks.engine import Engine

_LEFT_BY_LMDB: Final = ("-lock", LOCK_SUFFIX)
_MS: Final = 1_000_000


class Remade(NamedTuple):
    """What became of a store's catalog."""

    databases: list[DatabaseReport]
    kept: Path | None
    """What the old one is called now; None: there was none, or nothing was put in place."""
    is_found: bool
    """Whether a database was found, or there is none: else a new catalog would know nothing of what is there."""

    @property
    def is_whole(self) -> bool:
        """Whether everything could be read, and no record is missing."""
        return not any(report.gaps or report.problems for report in self.databases)


def check_is_store(root: Path) -> StoreLayout:
    """Return the layout of a store whose catalog may be lost.

    Raises:
        NotFoundError: there is none.
    """
    layout = StoreLayout(root)
    if not layout.databases.is_dir():
        message = f"there is no store at {root}: it has no directory {layout.databases.name!r}"
        raise NotFoundError(message)
    return layout


def remake_catalog(
    root: Path, *, dry_run: bool = False, engine: "Engine | None" = None, progress: Progress | None = None
) -> Remade:
    """Make a new catalog from what is on the disk and in the archive; with `dry_run`, only say what it would have.

    Nothing is put in place if there are directories of databases, and none of them says what it is.
    `engine` reads the chunks; None: this thread does.

    Raises:
        NotFoundError: there is no store.
        Locked: another process has it open to write.
        UnsupportedVersion: a later program wrote the catalog that is there, or a file of a database: nothing is wrong
            with it, and nothing was changed.
        AnotherArchive: the archive is not the one that the old catalog notes, or is not there.
        AccessDenied, UnavailableError: the archive refused, or did not answer.
    """
    layout = check_is_store(root.absolute())
    fs = PosixFS().rooted(layout.root)
    lock = None
    try:
        if not dry_run:
            lock = fs.lock_root(layout.catalog.with_name(layout.catalog.name + LOCK_SUFFIX))
        is_sound = _check_version(fs, layout)
        with _new_catalog(fs, layout, f"dry-{os.getpid()}" if dry_run else "new") as made:
            reports, is_found = _rebuilt(fs, layout, made, engine, progress, is_old_sound=is_sound)
            kept = _put_in_place(fs, layout, made) if is_found and not dry_run else None
            fs.check_root()
            return Remade(reports, kept, is_found)
    finally:
        if lock is not None:
            lock.close()
        fs.close()


def _check_version(fs: PosixFS, layout: StoreLayout) -> bool:
    """Say whether there is a catalog that is sound; raise if a later program wrote it, damaged or not.

    Raises:
        UnsupportedVersion: it did.
    """
    return fs.exists(layout.catalog) and check_file(layout.catalog).is_sound


@contextmanager
def _new_catalog(fs: PosixFS, layout: StoreLayout, suffix: str) -> Iterator[Path]:
    """Yield the path of a catalog that is made anew; whatever is left of it at the end is removed."""
    path = layout.catalog.with_name(f"{layout.catalog.name}.{suffix}")
    leftovers = [path, *(path.with_name(path.name + suffix) for suffix in _LEFT_BY_LMDB)]
    try:
        _remove(fs, leftovers)  # Of a run that was cut.
        yield path
    finally:
        _remove(fs, leftovers)


def _rebuilt(
    fs: PosixFS,
    layout: StoreLayout,
    path: Path,
    engine: "Engine | None",
    progress: Progress | None,
    *,
    is_old_sound: bool,
) -> tuple[list[DatabaseReport], bool]:
    """Return the reports, and whether the new catalog has a database, or there are no directories of any."""
    settings = load_settings(layout.root, fs)
    tier, keys = open_archive(settings, layout.root, fs), open_keys(settings, layout.root, fs)
    known = None
    if is_old_sound:  # One that is open in this process already is not read.
        with suppress(UsageError), Catalog.open(layout.catalog, settings.catalog, mode="r") as old:
            known = known_archives(old, tier)
    if known is None:
        check_directory(tier)
    with Catalog.open(path, settings.catalog) as catalog:
        reports = rebuild_catalog(
            fs, layout, catalog, tier, keys, known_archives=known, engine=engine, progress=progress
        )
        return reports, not reports or catalog.read(lambda view: any(view.dbs()))


def _put_in_place(fs: PosixFS, layout: StoreLayout, made: Path) -> Path | None:
    kept = None
    if fs.exists(layout.catalog):
        kept = layout.catalog.with_name(f"{layout.catalog.name}.{SystemClock().now_ns() // _MS}.old")
        fs.rename(layout.catalog, kept)
    fs.rename(made, layout.catalog)
    fs.sync_directory(layout.root)
    return kept


def _remove(fs: PosixFS, paths: list[Path]) -> None:
    for path in paths:
        with suppress(NotFoundError):
            fs.remove(path)
