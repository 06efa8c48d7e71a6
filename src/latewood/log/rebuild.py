"""Make a lost or corrupt manifest again from the segments, which describe themselves.

`assemble` decides, from plain summaries; `rebuild` reads the segments and acts.  Never changes a segment; one that is
not sound is renamed to `….q.rejected` if its loss is accepted.
Order of writes: docs/crash-safety.md, "rebuild".
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from latewood.errors import CorruptError, ManifestCorrupted, NotFoundError, UnsupportedVersion
from latewood.format.entries import EntryTable, SegmentEntry
from latewood.format.manifest import ActiveSegment, Manifest
from latewood.format.segment import HEADER_SIZE
from latewood.fs import FileSystem
from latewood.log.checkpoint import load_checkpoint
from latewood.log.layout import Layout, segment_id_of
from latewood.log.manifest import ManifestStore
from latewood.log.summary import SegmentSummary, summarize

Looks = Callable[[Sequence[Path]], Iterable[SegmentSummary]]
"""Takes looks at segments, one for each in their order, in whatever way it likes."""


class Problem(NamedTuple):
    """Something that a rebuilt log will have to do without."""

    path: Path
    problem: str


class Assembly(NamedTuple):
    """What the segments add up to."""

    entries: list[SegmentEntry]
    active: SegmentSummary
    problems: list[Problem]
    rejected: list[Path]
    """Segments that the log goes on without, if that loss is accepted: they are renamed, so as not to be in its way."""

    @property
    def first_sequence(self) -> int:
        """The oldest sequence that they hold."""
        assert self.active.header is not None
        return self.entries[0].start_sequence if self.entries else self.active.header.base_record_count

    @property
    def end_sequence(self) -> int:
        """The sequence after the newest that they hold."""
        assert self.active.header is not None
        return self.active.header.base_record_count + self.active.record_count


class RebuildReport(NamedTuple):
    """What a rebuild found, and whether it wrote a manifest."""

    segments_found: int
    segments_used: int
    first_sequence: int
    next_sequence_min: int
    """The first sequence of the open segment; its records are counted when the log is opened."""
    problems: list[Problem]
    is_needed: bool
    """Whether the manifest that was there is not sound, or lists other segments."""
    written: bool


def rebuild(
    fs: FileSystem,
    layout: Layout,
    *,
    dry_run: bool = False,
    accept_loss: bool = False,
    progress: Callable[[int, int], None] | None = None,
    looks: Looks | None = None,
) -> RebuildReport:
    """Read every segment's header and footer and write a manifest of those that are sound.

    `looks` takes the looks at segments; None: this thread does.

    With problems, such as a missing segment, nothing is written unless `accept_loss`; readers then meet DataLost
    at the gap, and segments that are not sound are renamed.  The log must not be open to write.

    Raises:
        NotFoundError: there is no log, or it has no segments.
        Locked: a writer has the log open.
        DirectoryReplaced: the log's directory was moved or replaced meanwhile.
    """
    if not fs.exists(layout.root):
        message = f"there is no log at {layout.root}"
        raise NotFoundError(message)
    if not fs.exists(layout.segments):
        raise _nothing_to_rebuild_from(layout)
    layout = Layout(fs.absolute(layout.root))
    fs = fs.rooted(layout.root)
    try:
        lock = None if dry_run else fs.lock_root(layout.lock)
    except BaseException:
        fs.close()
        raise
    try:
        assembly, found = _read(fs, layout, progress, looks or partial(_looks, fs))
        is_needed = not _is_listed(assembly, _old_manifest(fs, layout), layout)
        write = not dry_run and (accept_loss or not assembly.problems)
        if write:
            _write(fs, layout, assembly)
            fs.check_root()
        return _report(assembly, found, is_needed=is_needed, written=write)
    finally:
        if lock:
            lock.close()
        fs.close()


def _looks(fs: FileSystem, paths: Sequence[Path]) -> Iterable[SegmentSummary]:
    return (summarize(fs, path) for path in paths)


def _read(
    fs: FileSystem, layout: Layout, progress: Callable[[int, int], None] | None, looks: Looks
) -> tuple[Assembly, int]:
    end_known = _durable_end(fs, layout)  # First: beside a writer, in a dry run, the segments only grow.
    paths = [path for path in fs.walk(layout.segments) if segment_id_of(path) is not None]
    summaries = []
    for done, summary in enumerate(looks(paths), 1):
        summaries.append(summary)
        if progress:
            progress(done, len(paths))
    if not summaries:
        raise _nothing_to_rebuild_from(layout)
    assembly = assemble(summaries, layout)
    assembly.problems.extend(_missing(fs, layout, assembly, end_known))
    return assembly, len(paths)


def _nothing_to_rebuild_from(layout: Layout) -> NotFoundError:
    return NotFoundError(f"there are no segments under {layout.segments}: nothing to rebuild from")


def _is_listed(assembly: Assembly, manifest: Manifest | None, layout: Layout) -> bool:
    """Say whether a manifest lists just these segments."""
    if manifest is None or manifest.active.path != layout.relative(assembly.active.path):
        return False
    return [manifest.entries[index] for index in range(len(manifest.entries))] == assembly.entries


def _missing(fs: FileSystem, layout: Layout, assembly: Assembly, end_known: int) -> list[Problem]:
    """Say what is known to have been durable, and not to have been retired, and no segment holds."""
    manifest = _old_manifest(fs, layout)
    first, end = assembly.first_sequence, assembly.end_sequence
    gaps = [(manifest.first_sequence if manifest else first, first), (end, end_known)]
    return [
        Problem(layout.segments, f"records {start} to {stop - 1}, which were durable, are missing")
        for start, stop in gaps
        if start < stop
    ]


def _durable_end(fs: FileSystem, layout: Layout) -> int:
    """Return how far the log was durable, by the old manifest and the last checkpoint, if they can be read."""
    manifest, checkpoint = _old_manifest(fs, layout), load_checkpoint(fs, layout)
    return max(manifest.next_sequence if manifest else 0, checkpoint.durable_sequence if checkpoint else 0)


def _old_manifest(fs: FileSystem, layout: Layout) -> Manifest | None:
    try:
        return ManifestStore(fs, layout).load()
    except (CorruptError, UnsupportedVersion):
        return None


def assemble(summaries: Iterable[SegmentSummary], layout: Layout) -> Assembly:
    """Put segments in order and say what is wrong with them.  Pure.

    The last one becomes the active segment, sealed or not: opening the log finishes what a crash left.

    Raises:
        ManifestCorrupted: not one segment is sound.
    """
    problems: list[Problem] = []
    rejected: list[Path] = []
    sound: dict[int, SegmentSummary] = {}
    for summary in sorted(summaries, key=lambda one: (segment_id_of(one.path) or 0, one.record_count)):
        problem = _problem_of(summary, sound)
        if problem:
            problems.append(Problem(summary.path, problem))
            rejected.append(summary.path)
        elif summary.header:
            sound[summary.header.segment_index] = summary
    if not sound:
        raise ManifestCorrupted("no sound segment to rebuild from", layout.segments, 0)
    *before, last = (sound[segment_id] for segment_id in sorted(sound))
    entries = []
    for summary in before:
        if summary.footer is None and summary.record_count:
            problems.append(Problem(summary.path, "it is not sealed, and another segment follows"))
            rejected.append(summary.path)
        elif summary.footer and summary.record_count:
            entries.append(_entry(summary, layout))
    problems += _gaps(entries, last, layout)
    return Assembly(entries, last, problems, rejected)


def _problem_of(summary: SegmentSummary, sound: dict[int, SegmentSummary]) -> str | None:
    if summary.header is None:
        return summary.problem
    if summary.header.segment_index != segment_id_of(summary.path):
        return "the header names another segment"
    twin = sound.get(summary.header.segment_index)
    if twin and twin.record_count:
        return f"{twin.path} has the same id, and both have records"
    return None


def _entry(summary: SegmentSummary, layout: Layout) -> SegmentEntry:
    assert summary.footer is not None
    start = summary.footer.base_record_count
    return SegmentEntry(start, start + summary.footer.record_count - 1, summary.size, layout.relative(summary.path))


def _gaps(entries: list[SegmentEntry], last: SegmentSummary, layout: Layout) -> list[Problem]:
    assert last.header is not None
    following = [(entry.start_sequence, layout.absolute(entry.path)) for entry in entries[1:]]
    following.append((last.header.base_record_count, last.path))
    gaps = []
    for entry, (start, path) in zip(entries, following, strict=False):
        if start != entry.end_sequence + 1:
            gaps.append(Problem(path, f"records {entry.end_sequence + 1} to {start - 1} are missing before it"))
    return gaps


def _write(fs: FileSystem, layout: Layout, assembly: Assembly) -> None:
    header = assembly.active.header
    assert header is not None
    for rejected in assembly.rejected:
        fs.rename(rejected, rejected.with_name(f"{rejected.name}.rejected"))
        fs.sync_directory(rejected.parent)
    store = ManifestStore(fs, layout)
    entries = EntryTable.empty(layout.root / "manifest")
    for entry in assembly.entries:
        entries = entries.append(entry)
    path = layout.relative(assembly.active.path)
    active = ActiveSegment(header.segment_index, HEADER_SIZE, 0, path)
    store.store(Manifest(_generation(fs, layout) + 1, header.base_record_count, active, entries))
    fs.sync_directory(layout.root)


def _generation(fs: FileSystem, layout: Layout) -> int:
    manifest = _old_manifest(fs, layout)
    return manifest.generation if manifest else 0


def _report(assembly: Assembly, found: int, *, is_needed: bool, written: bool) -> RebuildReport:
    header = assembly.active.header
    assert header is not None
    used, first = len(assembly.entries) + 1, assembly.first_sequence
    return RebuildReport(found, used, first, header.base_record_count, assembly.problems, is_needed, written)
