"""Make a lost or corrupt manifest again from the segments, which describe themselves.

`assemble` decides, from plain summaries; `rebuild` reads the segments and acts; `begin_life` is for a log whose
manifest is sound, and that was put in the place of another copy.  Never changes a segment; one that is not sound is
renamed to `….q.rejected` if its loss is accepted.

The log keeps its identity, its owner and its watermark, and begins a new life: whoever was further than its end reads
that from the life of a position.
Order of writes: docs/crash-safety.md, "rebuild".
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from latewood.errors import CorruptError, ManifestCorrupted, NotFoundError
from latewood.format.entries import EntryTable, SegmentEntry
from latewood.format.identity import LogIdentity
from latewood.format.manifest import ActiveSegment, Manifest
from latewood.format.segment import HEADER_SIZE
from latewood.fs import FileSystem
from latewood.log.checkpoint import load_checkpoint, lock_checkpoint
from latewood.log.identity import Claim, RandomBytes, born, check_is_of, load_identity, reborn, store_identity
from latewood.log.layout import Layout, segment_id_of
from latewood.log.manifest import ManifestStore
from latewood.log.pointer import load_pointer
from latewood.log.presence import check_is_log
from latewood.log.summary import SegmentSummary, summarize
from latewood.log.view import View

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
    watermark: int | None
    """The coordinator watermark of the latest sealed segment; None if there is none."""

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
    identity: str | None
    """The log's identity, which it keeps; None: none was found, so it gets a new one."""
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
    random_bytes: RandomBytes | None = None,
    claim: Claim | None = None,
) -> RebuildReport:
    """Read every segment's header and footer and write a manifest of those that are sound.

    `looks` takes the looks at segments; None: this thread does.

    With problems, such as a missing segment, nothing is written unless `accept_loss`; readers then meet DataLost
    at the gap, and segments that are not sound are renamed.  The log must not be open to write.  It keeps its identity,
    as the manifest or the file `identity` has it, and begins a new life.  `claim` says what it is called, and whose it
    is, if neither has it any more; None: a new name, and nobody's.

    Raises:
        NotFoundError: there is no log, or it has no segments.
        Locked: a writer has the log open.
        UnsupportedVersion: a later program wrote one of the log's files; nothing was changed.
        DirectoryReplaced: the log's directory was moved or replaced meanwhile.
    """
    if not fs.exists(layout.root):
        message = f"there is no log at {layout.root}"
        raise NotFoundError(message)
    if not fs.exists(layout.segments):
        raise _nothing_to_rebuild_from(layout)
    layout = Layout(fs.absolute(layout.root))
    with _held(fs, layout, writable=not dry_run) as held:
        _check_versions(held, layout)
        named = load_identity(held, layout)
        assembly, found, manifest = _read(held, layout, progress, looks or partial(_looks, held), named)
        identity = (manifest.identity if manifest else None) or named
        write = not dry_run and (accept_loss or not assembly.problems)
        if write:
            start = assembly.end_sequence
            new = reborn(identity, start, random_bytes) if identity else born(claim or Claim(), start, random_bytes)
            _write(held, layout, assembly, manifest, new)
        if identity is None and claim is not None and claim.birth is not None:
            identity = born(claim, 0)
        is_needed = not _is_listed(assembly, manifest, layout)
        return _report(assembly, found, identity, is_needed=is_needed, written=write)


def begin_life(fs: FileSystem, layout: Layout, random_bytes: RandomBytes | None = None) -> LogIdentity | None:
    """Begin a new life of a log that is a copy, put in its place by hand: records after its end may have been seen.

    Positions up to its end stay valid.  Return its identity, or None if it is of version 1 and has none.  The log must
    not be open to write.

    Raises:
        NotFoundError: there is no log.
        Locked: a writer has the log open.
        DirectoryReplaced: the log's directory was moved or replaced meanwhile.
        ManifestCorrupted: the manifest is not sound, or of another log than `identity`: see `rebuild`.
        UnsupportedVersion: a later program wrote it.
    """
    layout = Layout(fs.absolute(layout.root))
    check_is_log(fs, layout, ManifestStore(fs, layout))
    with _held(fs, layout, writable=True) as held:
        store = ManifestStore(held, layout)
        manifest = store.load()
        if manifest.identity is None:
            return None
        check_is_of(held, layout, manifest.identity)  # What a later program wrote is refused too, and not replaced.
        load_pointer(held, layout)
        store.secure()  # The slot that is written next must not be the one that a power cut would bring back.
        identity = reborn(manifest.identity, View(held, layout, store.load).end().sequence, random_bytes)
        store_identity(held, layout, identity)
        store.store(manifest._replace(generation=manifest.generation + 1, identity=identity))
        return identity


@contextmanager
def _held(fs: FileSystem, layout: Layout, *, writable: bool) -> Iterator[FileSystem]:
    """Hold a log's directory open, and locked if it is to be written; look at the end whether it is still there.

    Raises:
        Locked: a writer has the log open.
        DirectoryReplaced: its directory was moved or replaced meanwhile.
    """
    with ExitStack() as end:
        fs = fs.rooted(layout.root)
        end.callback(fs.close)
        if writable:
            end.callback(fs.lock_root(layout.lock).close)
            if (checkpoint := lock_checkpoint(fs, layout)) is not None:
                end.callback(checkpoint.close)
        yield fs
        fs.check_root()


def _looks(fs: FileSystem, paths: Sequence[Path]) -> Iterable[SegmentSummary]:
    return (summarize(fs, path) for path in paths)


def _read(
    fs: FileSystem,
    layout: Layout,
    progress: Callable[[int, int], None] | None,
    looks: Looks,
    named: LogIdentity | None,
) -> tuple[Assembly, int, Manifest | None]:
    """Return what the segments add up to, how many there are, and the manifest, if it can be read and is this log's.

    `named` is what the file `identity` says.
    """
    earlier, checkpoint = _old_manifest(fs, layout), load_checkpoint(fs, layout)
    # These come first: beside a writer, in a dry run, the segments only grow.
    paths = [path for path in fs.walk(layout.segments) if segment_id_of(path) is not None]
    summaries = []
    for done, summary in enumerate(looks(paths), 1):
        summaries.append(summary)
        if progress:
            progress(done, len(paths))
    if not summaries:
        raise _nothing_to_rebuild_from(layout)
    assembly = assemble(summaries, layout)
    manifest = _old_manifest(fs, layout)
    if (problem := _stranger(manifest, named, assembly)) is not None:
        assembly.problems.append(Problem(layout.root / "manifest.current", problem))
        earlier = manifest = None
    end_known = max(earlier.next_sequence if earlier else 0, checkpoint.durable_sequence if checkpoint else 0)
    assembly.problems.extend(_missing(layout, assembly, manifest, end_known))
    assembly.problems.extend(_exchanged(layout, assembly, manifest))
    if _watermark(fs, layout, assembly, manifest) is None:
        problem = "missing or damaged, and it alone had the coordinator watermark, which would be 0 from now on"
        assembly.problems.append(Problem(layout.sealed_pointer, problem))
    return assembly, len(paths), manifest


def _nothing_to_rebuild_from(layout: Layout) -> NotFoundError:
    return NotFoundError(
        f"there are no segments under {layout.segments}: nothing to rebuild from; restore that directory from a "
        f"backup, or move {layout.root} away to begin anew"
    )


def _is_listed(assembly: Assembly, manifest: Manifest | None, layout: Layout) -> bool:
    """Say whether a manifest lists just these segments."""
    if manifest is None or manifest.active.path != layout.relative(assembly.active.path):
        return False
    listed = [manifest.entries[index] for index in range(len(manifest.entries))]
    if manifest.entries.is_version_1:
        return listed == [entry._replace(ext_id=0, seal_checksum=0) for entry in assembly.entries]
    return listed == assembly.entries


def _watermark(fs: FileSystem, layout: Layout, assembly: Assembly, manifest: Manifest | None) -> int | None:
    """Return the coordinator watermark of the latest seal that is left; None if it is not known any more."""
    assert assembly.active.header is not None
    if assembly.watermark is not None:
        return assembly.watermark
    if manifest and manifest.identity:
        return manifest.coordinator_watermark
    if pointer := load_pointer(fs, layout):
        return pointer.coordinator_watermark
    return None if assembly.active.header.base_offset else 0  # 0: no record was ever sealed.


def _stranger(manifest: Manifest | None, named: LogIdentity | None, assembly: Assembly) -> str | None:
    """Say what speaks against a manifest: `identity` names another log, and no segment here is one that it lists."""
    if not manifest or not manifest.identity or not named or named.identity == manifest.identity.identity:
        return None
    listed = {manifest.entries[index].seal_checksum for index in range(len(manifest.entries))} - {0}
    if not listed.isdisjoint(entry.seal_checksum for entry in assembly.entries):
        return None
    return (
        f"it is of the log {manifest.identity.identity.hex()} and lists no sealed segment that is here: it is ignored, "
        f"and the log is {named.identity.hex()}, as `identity` says"
    )


def _exchanged(layout: Layout, assembly: Assembly, manifest: Manifest | None) -> list[Problem]:
    """Say which files are not the segments that the log sealed under their names."""
    listed = [manifest.entries[index] for index in range(len(manifest.entries))] if manifest else []
    sealed = {entry.path: entry.seal_checksum for entry in listed}
    problem = "it is not the segment that the log sealed: it is of another log, or of another copy of this one"
    return [
        Problem(layout.absolute(entry.path), problem)
        for entry in assembly.entries
        if sealed.get(entry.path, 0) not in (0, entry.seal_checksum)
    ]


def _missing(layout: Layout, assembly: Assembly, manifest: Manifest | None, end_known: int) -> list[Problem]:
    """Say what is known to have been durable, and not to have been retired, and no segment holds."""
    first, end = assembly.first_sequence, assembly.end_sequence
    gaps = [(manifest.first_sequence if manifest else first, first), (end, end_known)]
    return [
        Problem(layout.segments, f"records {start} to {stop - 1}, which were durable, are missing")
        for start, stop in gaps
        if start < stop
    ]


def _old_manifest(fs: FileSystem, layout: Layout) -> Manifest | None:
    try:
        return ManifestStore(fs, layout).load()
    except CorruptError:
        return None


def _check_versions(fs: FileSystem, layout: Layout) -> None:
    """Raise if a later program wrote one of the files beside the segments, whether or not it is read here.

    Raises:
        UnsupportedVersion: it did.
    """
    ManifestStore(fs, layout).check_versions()
    load_pointer(fs, layout)
    load_checkpoint(fs, layout)


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
    watermark = None
    for summary in before:
        if summary.footer is None and summary.record_count:
            problems.append(Problem(summary.path, "it is not sealed, and another segment follows"))
            rejected.append(summary.path)
        elif summary.footer and summary.record_count:
            entries.append(_entry(summary, layout))
            watermark = summary.footer.coordinator_watermark
    problems += _gaps(entries, last, layout)
    return Assembly(entries, last, problems, rejected, watermark)


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
    footer = summary.footer
    assert footer is not None
    start = footer.base_record_count
    last, path = start + footer.record_count - 1, layout.relative(summary.path)
    return SegmentEntry(start, last, summary.size, footer.ext_id, footer.checksum, path)


def _gaps(entries: list[SegmentEntry], last: SegmentSummary, layout: Layout) -> list[Problem]:
    assert last.header is not None
    following = [(entry.start_sequence, layout.absolute(entry.path)) for entry in entries[1:]]
    following.append((last.header.base_record_count, last.path))
    gaps = []
    for entry, (start, path) in zip(entries, following, strict=False):
        if start != entry.end_sequence + 1:
            gaps.append(Problem(path, f"records {entry.end_sequence + 1} to {start - 1} are missing before it"))
    return gaps


def _write(
    fs: FileSystem, layout: Layout, assembly: Assembly, manifest: Manifest | None, identity: LogIdentity
) -> None:
    header = assembly.active.header
    assert header is not None
    for rejected in assembly.rejected:
        fs.rename_new(rejected, _rejected_name(fs, rejected))
        fs.sync_directory(rejected.parent)
    store_identity(fs, layout, identity)
    _forget_lost_checkpoint(fs, layout, header.segment_index)
    entries = EntryTable.empty(layout.root / "manifest")
    for entry in assembly.entries:
        entries = entries.append(entry)
    path = layout.relative(assembly.active.path)
    active = ActiveSegment(header.segment_index, HEADER_SIZE, 0, path)
    generation = manifest.generation + 1 if manifest else 1
    watermark = _watermark(fs, layout, assembly, manifest) or 0
    new = Manifest(generation, header.base_record_count, active, entries, watermark, identity)
    ManifestStore(fs, layout).store(new)
    fs.sync_directory(layout.root)


def _forget_lost_checkpoint(fs: FileSystem, layout: Layout, last_segment_id: int) -> None:
    """Remove a checkpoint of a segment behind the last: what is written there now would be called damaged by it."""
    checkpoint = load_checkpoint(fs, layout)
    if checkpoint is not None and checkpoint.segment_id > last_segment_id:
        fs.remove(layout.checkpoint)
        fs.sync_directory(layout.root)


def _rejected_name(fs: FileSystem, path: Path) -> Path:
    """Return a name that is free: an earlier rebuild may have rejected a segment of the same id, with other records."""
    name = path.with_name(f"{path.name}.rejected")
    number = 1
    while fs.exists(name):
        number += 1
        name = path.with_name(f"{path.name}.rejected-{number}")
    return name


def _report(
    assembly: Assembly, found: int, identity: LogIdentity | None, *, is_needed: bool, written: bool
) -> RebuildReport:
    header = assembly.active.header
    assert header is not None
    return RebuildReport(
        segments_found=found,
        segments_used=len(assembly.entries) + 1,
        first_sequence=assembly.first_sequence,
        next_sequence_min=header.base_record_count,
        problems=assembly.problems,
        identity=identity.identity.hex() if identity else None,
        is_needed=is_needed,
        written=written,
    )
