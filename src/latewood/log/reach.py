"""How far a log reaches, seen from outside, beside its writer or without one.  Never writes."""

from typing import NamedTuple

from latewood.errors import CorruptError, NotFoundError
from latewood.fs import FileSystem
from latewood.limits import U64_MAX
from latewood.log.layout import Layout
from latewood.log.manifest import ManifestStore
from latewood.log.presence import check_is_log
from latewood.log.view import View
from latewood.segment import read_footer


class LogReach(NamedTuple):
    """Where a log begins and ends."""

    first: int
    """The sequence of its first record."""
    sealed_end: int
    """Every record that it has below this sequence is in a sealed segment."""
    end: int
    """The sequence of the next record."""
    identity: bytes | None
    """Which log it is; None: an older program made it."""


def reach_of(fs: FileSystem, layout: Layout, enough: int = U64_MAX) -> LogReach | None:
    """Return where a log ends, or None if there is none, or none that could ever have held a record.

    The records of the open segment are not counted if its sealed ones go as far as `enough`.

    Raises:
        CorruptError, UnsupportedVersion: the manifest, or the open segment, cannot be read.
    """
    store = ManifestStore(fs, layout)
    try:
        check_is_log(fs, layout, store)
    except NotFoundError:
        return None
    manifest = store.load_while_written()
    identity = manifest.identity.identity if manifest.identity else None
    if manifest.active_base >= enough:
        return LogReach(manifest.first_sequence, manifest.active_base, manifest.active_base, identity)
    view = View(fs, layout, store.load_while_written)
    end = view.end().sequence
    sealed = _is_sealed(fs, layout, view.manifest.active.path)
    return LogReach(manifest.first_sequence, end if sealed else view.manifest.active_base, end, identity)


def _is_sealed(fs: FileSystem, layout: Layout, path: str) -> bool:
    """Say whether a segment that the manifest calls open has its seal: a crash, or this moment, is in mid-roll."""
    try:
        file = fs.open(layout.absolute(path))
    except NotFoundError:  # Retired since: the writer is far beyond it.
        return False
    try:
        read_footer(file)
    except CorruptError:
        return False
    finally:
        file.close()
    return True
