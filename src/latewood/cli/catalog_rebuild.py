"""`latewood rebuild --catalog STORE`: make a lost or damaged catalog again.

Order: 1. Nobody else writes: the store's lock.  2. The new catalog, under another name, whole and closed.  3. What was
there gets a name of its own.  4. The new one gets the store's name.  A cut before 4 leaves no catalog, and the command
can be given again; nothing else is ever changed.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from latewood.catalog import Catalog
from latewood.cli.confirmation import ask
from latewood.cli.errors import ExitCode, say
from latewood.cli.output import Output
from latewood.clock import SystemClock
from latewood.errors import NotFoundError
from latewood.format.store_layout import StoreLayout
from latewood.fs import PosixFS
from latewood.runtime.opening import load_settings, open_archive, open_keys
from latewood.runtime.rebuild import DatabaseReport, rebuild_catalog

_LOCK_SUFFIX = ".writer"
_LEFT_BY_LMDB = ("-lock", _LOCK_SUFFIX)
_MS = 1_000_000


def rebuild_store(root: Path, output: Output, *, dry_run: bool, yes: bool) -> int:
    """Do what `latewood rebuild --catalog` says."""
    fs, layout = PosixFS(), StoreLayout(root)
    if not layout.databases.is_dir():
        message = f"there is no store at {root}: it has no directory {layout.databases.name!r}"
        raise NotFoundError(message)
    question = f"Make a new catalog of {root}, and keep what is there under another name?"
    if not dry_run and not ask(question, yes=yes):
        say("nothing was written")
        return ExitCode.FAILED
    lock = None if dry_run else fs.lock(layout.catalog.with_name(layout.catalog.name + _LOCK_SUFFIX))
    try:
        with _new_catalog(fs, layout) as made:
            reports = _rebuilt(fs, layout, made)
            if not dry_run:
                _put_in_place(fs, layout, made)
    finally:
        if lock is not None:
            lock.close()
    output.rows(DatabaseReport._fields, reports)
    for report in reports:
        for problem in report.problems:
            say(f"{report.name}: {problem}")
    is_whole = not any(report.gaps or report.problems for report in reports)
    return ExitCode.OK if is_whole else ExitCode.CORRUPT


@contextmanager
def _new_catalog(fs: PosixFS, layout: StoreLayout) -> Iterator[Path]:
    """Yield the path of a catalog that is made anew; whatever is left of it at the end is removed."""
    path = layout.catalog.with_name(f"{layout.catalog.name}.new")
    leftovers = [path, *(path.with_name(path.name + suffix) for suffix in _LEFT_BY_LMDB)]
    try:
        _remove(fs, leftovers)  # Of a run that was cut.
        yield path
    finally:
        _remove(fs, leftovers)


def _rebuilt(fs: PosixFS, layout: StoreLayout, path: Path) -> list[DatabaseReport]:
    settings = load_settings(layout.root, fs)
    tier, keys = open_archive(settings, layout.root, fs), open_keys(settings, layout.root, fs)
    with Catalog.open(path, settings.catalog) as catalog:
        return rebuild_catalog(fs, layout, catalog, tier, keys)


def _put_in_place(fs: PosixFS, layout: StoreLayout, made: Path) -> None:
    if fs.exists(layout.catalog):
        kept = layout.catalog.with_name(f"{layout.catalog.name}.{SystemClock().now_ns() // _MS}.old")
        fs.rename(layout.catalog, kept)
        say(f"what was there is {kept} now")
    fs.rename(made, layout.catalog)
    fs.sync_directory(layout.root)


def _remove(fs: PosixFS, paths: list[Path]) -> None:
    for path in paths:
        with suppress(NotFoundError):
            fs.remove(path)
