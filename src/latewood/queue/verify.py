"""Check a queue: its log, and its readers' positions."""

from collections.abc import Iterator
from pathlib import Path

from latewood.errors import CorruptError, NotFoundError
from latewood.format.cursor import FILE_BYTES_MAX, SIZE, SIZE_1, SLOT_OFFSETS, Cursor, decode_file
from latewood.fs import FileSystem
from latewood.log.layout import Layout
from latewood.log.manifest import ManifestStore
from latewood.log.verify import Finding, Looks, Progress, Verification, verify_log
from latewood.log.view import View
from latewood.queue.ahead import problem_of
from latewood.queue.cursor import cursor_names, cursor_path


def verify_queue(
    fs: FileSystem,
    layout: Layout,
    *,
    deep: bool = False,
    progress: Progress | None = None,
    looks: Looks | None = None,
) -> Verification:
    """Check the log as `verify_log` does, and that every reader's position can be read.

    Raises:
        NotFoundError: there is no log.
        UnsupportedVersion: a later program wrote one of its files, or the position of a reader.
    """
    verification = verify_log(fs, layout, deep=deep, progress=progress, looks=looks)
    findings = list(verification.findings)
    cursors = {}
    for name in cursor_names(fs, layout.readers):
        path = cursor_path(layout.readers, name)
        try:
            raw = _contents(fs, path)
            cursors[path] = decode_file(raw, path)
            findings += _torn_slots(raw, path)
        except NotFoundError:  # Removed since we looked.
            continue
        except CorruptError as error:
            remedy = f"`latewood readers seek` moves reader {name!r}, and `latewood readers rm` removes it"
            findings.append(Finding("damage", path, error.offset, error.reason, remedy))
    if verification.is_sound:
        findings += _astray(fs, layout, cursors)
    return verification._replace(findings=findings)


def _contents(fs: FileSystem, path: Path) -> bytes:
    file = fs.open(path)
    try:
        return file.pread(FILE_BYTES_MAX, 0)
    finally:
        file.close()


def _torn_slots(raw: bytes, path: Path) -> Iterator[Finding]:
    """Find a slot that is not sound in a file whose other one is: a reader then goes on from an older position."""
    if len(raw) < SIZE_1:  # A position of an older program has no slots.
        return
    for at in SLOT_OFFSETS:
        slot = raw[at : at + SIZE]
        if len(slot) >= SIZE_1 and not any(slot):  # Nothing was ever committed here.
            continue
        alone = bytearray(FILE_BYTES_MAX)
        alone[at : at + len(slot)] = slot
        try:
            decode_file(bytes(alone), path)
        except CorruptError:
            problem = "one of its two slots is not sound, so the other counts: a commit was torn, or it is damaged"
            yield Finding("warning", path, at, problem, "the reader may read some records again; its commits mend it")


def _astray(fs: FileSystem, layout: Layout, cursors: dict[Path, Cursor]) -> list[Finding]:
    """Find readers of another log, and those that have read more than this one has, as after a copy was restored."""
    view = View(fs, layout, ManifestStore(fs, layout).load_while_written)
    end, identity = view.end().sequence, view.manifest.identity
    problems = [problem_of(cursor, path, end, identity) for path, cursor in cursors.items()]
    return [Finding("damage", error.path, error.offset, error.reason, error.mend) for error in problems if error]
