"""Looking at disks: what is on one, and on all that a power cut may leave."""

from pathlib import Path

from latewood.testing import CrashFS

ROOT = Path("/")
Tree = frozenset[tuple[str, bytes]]


def content(fs: CrashFS, path: Path) -> bytes | None:
    """A file's bytes; None if there is no file."""
    if not fs.exists(path):
        return None
    file = fs.open(path)
    return file.pread(file.size(), 0)


def tree(fs: CrashFS) -> Tree:
    """Every file with its bytes."""
    found = ((path, content(fs, path)) for path in fs.walk(ROOT))
    return frozenset((str(path), data) for path, data in found if data is not None)


def contents_after_cut(fs: CrashFS, path: Path, limit: int = 10_000) -> set[bytes | None]:
    return {content(survivor, path) for survivor in fs.survivors(limit=limit)}


def trees_after_cut(fs: CrashFS, limit: int = 10_000) -> set[Tree]:
    return {tree(survivor) for survivor in fs.survivors(limit=limit)}


def names_after_cut(fs: CrashFS, limit: int = 10_000) -> set[tuple[str, ...]]:
    return {tuple(str(path) for path in survivor.walk(ROOT)) for survivor in fs.survivors(limit=limit)}


def durable(fs: CrashFS, path: Path, data: bytes = b"") -> None:
    """Make a file that no power cut can take away."""
    fs.make_directory(path.parent)
    file = fs.open(path, create=True)
    file.pwrite(data, 0)
    file.sync()
    fs.sync_directory(path.parent)
    file.close()
