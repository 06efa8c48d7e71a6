"""Check a log without changing it: do manifest, segments and advisory files agree, and are they sound?"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from latewood.errors import CorruptError, NotFoundError
from latewood.format.entries import SegmentEntry
from latewood.format.identity import LogIdentity
from latewood.format.manifest import Manifest
from latewood.format.segment import SegmentFooter
from latewood.fs import FileSystem
from latewood.limits import VERIFY_THREADS_MAX
from latewood.log.checkpoint import load_checkpoint
from latewood.log.identity import load_identity, of_two_logs
from latewood.log.layout import Layout, segment_id_of
from latewood.log.manifest import ManifestStore
from latewood.log.pointer import load_pointer
from latewood.log.presence import check_is_log, no_segments
from latewood.log.successor import has_record, unknown_successor
from latewood.log.summary import SegmentSummary, summarize
from latewood.segment import check_seal

Progress = Callable[[int, int], None]
"""Told how much is done, of how much."""


class Finding(NamedTuple):
    """One thing that is not as it should be."""

    severity: Literal["damage", "warning"]
    path: Path
    offset: int
    problem: str
    remedy: str


class Verification(NamedTuple):
    """What a check found."""

    findings: list[Finding]
    segments_checked: int
    records_checked: int
    bytes_checked: int
    identity: LogIdentity | None = None
    """Which log it is; None: its manifest is of version 1, or damaged."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged."""
        return all(finding.severity != "damage" for finding in self.findings)


Look = Callable[[], SegmentSummary]
"""Returns what `summarize` found, or raises what it raised."""

Looks = Callable[[Sequence[SegmentEntry]], Iterable[Look]]
"""Takes looks at sealed segments, one for each in their order, in whatever way it likes."""


def verify_log(
    fs: FileSystem,
    layout: Layout,
    *,
    deep: bool = False,
    progress: Progress | None = None,
    looks: Looks | None = None,
) -> Verification:
    """Check manifest, headers and footers, and with `deep` every record.  Works beside a writer.

    `looks` takes the looks at sealed segments, as deep as they should be; None: this process does.

    Raises:
        NotFoundError: there is no log.
        UnsupportedVersion: a later program wrote one of its files: it may be sound, and this program cannot tell.
    """
    store = ManifestStore(fs, layout)
    try:
        check_is_log(fs, layout, store)
        manifest = store.load_while_written()
    except CorruptError as error:
        damage = Finding("damage", error.path, error.offset, error.reason, error.mend)
        return Verification([damage], 0, 0, 0)
    if not manifest.is_first and not fs.exists(layout.segments):
        gone = no_segments(layout)
        return Verification([Finding("damage", gone.path, 0, gone.reason, gone.mend)], 0, 0, 0, manifest.identity)
    check = _Check(fs, layout, manifest, deep=deep)
    for done, (entry, looked) in enumerate(_looked_at(fs, layout, manifest, looks, deep=deep)):
        check.sealed(entry, looked)
        if progress:
            progress(done + 1, len(manifest.entries) + 1)
    check.active()
    check.advisory_files()
    check.identity()
    check.orphans()
    return Verification(check.findings, check.segments, check.records, check.bytes, manifest.identity)


def _looked_at(
    fs: FileSystem, layout: Layout, manifest: Manifest, looks: Looks | None, *, deep: bool
) -> Iterator[tuple[SegmentEntry, Look]]:
    """Yield every sealed segment with a look at it; deep looks are taken some segments ahead, in threads."""
    entries = [manifest.entries[index] for index in range(len(manifest.entries))]
    if looks is not None:
        yield from zip(entries, looks(entries), strict=True)
        return
    if not deep:
        yield from ((entry, partial(summarize, fs, layout.absolute(entry.path))) for entry in entries)
        return
    with ThreadPoolExecutor(VERIFY_THREADS_MAX, thread_name_prefix="latewood-verify") as executor:
        ahead: deque[tuple[SegmentEntry, Look]] = deque()
        for entry in entries:
            looking = executor.submit(summarize, fs, layout.absolute(entry.path), deep=True)
            ahead.append((entry, looking.result))
            if len(ahead) > VERIFY_THREADS_MAX:
                yield ahead.popleft()
        yield from ahead


class _Check:
    """One run over a log, collecting what it finds."""

    def __init__(self, fs: FileSystem, layout: Layout, manifest: Manifest, *, deep: bool) -> None:
        self._fs, self._layout, self._manifest, self._deep = fs, layout, manifest, deep
        self._expected = manifest.first_sequence
        self.findings: list[Finding] = []
        self.segments = self.records = self.bytes = 0

    def sealed(self, entry: SegmentEntry, look: Look) -> None:
        """Check a segment that the manifest says is sealed."""
        path = self._layout.absolute(entry.path)
        self._gap_before(entry.start_sequence, path)
        self._expected = entry.end_sequence + 1
        summary = self._summary(path, look)
        if summary is None:
            return
        footer = summary.footer
        if footer is None:
            self._damage(path, summary.size, "the manifest says sealed, and there is no sound footer")
        elif summary.size != entry.size:
            self._damage(path, footer.index_offset, "footer and manifest do not agree")
        elif error := _seal_error(footer, entry, path):
            self.findings.append(Finding("damage", path, error.offset, error.reason, error.mend))
        elif self._manifest.identity and footer.ext_id != entry.ext_id:
            problem = f"the manifest says cohort {entry.ext_id}, and the footer {footer.ext_id}"
            self._warn(path, footer.index_offset, problem, "`latewood rebuild` makes the manifest again")

    def active(self) -> None:
        """Check the open segment: everything below the last checkpoint must be there."""
        active = self._manifest.active
        path = self._layout.absolute(active.path)
        self._gap_before(self._manifest.active_base, path)
        checkpoint = load_checkpoint(self._fs, self._layout)  # First: a writer may go on while we count.
        look = partial(summarize, self._fs, path, deep=self._deep)
        summary = self._summary(path, look, torn_tail_ok=True)
        if summary is None:
            return
        if summary.header is None:
            self._damage(path, summary.problem_offset, summary.problem or "there is no header")
            return
        if summary.header.base_record_count != self._manifest.active_base:
            self._damage(path, 0, "header and manifest do not agree")
        durable = active.write_offset
        if checkpoint and checkpoint.segment_id == active.segment_id:
            durable = max(durable, checkpoint.write_offset)
        end = summary.problem_offset if summary.problem else summary.records_end
        if end < durable:
            self._damage(path, end, "a durable record is damaged")
        elif summary.problem:
            self._warn(path, summary.problem_offset, "a torn tail", "opening the log to append cuts it")

    def identity(self) -> None:
        """Check that the second copy of the identity says what the manifest does; version 1 has neither."""
        identity, path = self._manifest.identity, self._layout.identity
        if identity is None:
            return
        remedy = "opening the log to append writes it again"
        found = load_identity(self._fs, self._layout)
        if found is None:
            self._warn(path, 0, "missing or damaged: a rebuild would have to give the log another identity", remedy)
        elif found.identity != identity.identity:
            error = of_two_logs(self._layout, found, identity)
            self.findings.append(Finding("damage", path, error.offset, error.reason, error.mend))
        elif found != identity:
            self._warn(path, 0, "it does not say what the manifest says", remedy)

    def advisory_files(self) -> None:
        """Check what recovery can do without."""
        entries = self._manifest.entries
        if len(entries):
            pointer = load_pointer(self._fs, self._layout)
            if pointer is None or pointer.segment_id != entries[-1].segment_id:
                remedy = "opening the log to append writes it again"
                self._warn(self._layout.sealed_pointer, 0, "missing or stale", remedy)
        checkpoint_exists = self._fs.exists(self._layout.checkpoint)
        is_new = not len(entries) and not self.records  # It is made empty, and first written by a flush of records.
        if checkpoint_exists and load_checkpoint(self._fs, self._layout) is None and not is_new:
            self._warn(self._layout.checkpoint, 0, "not sound", "the next flush writes it again")

    def orphans(self) -> None:
        """Report segments that the manifest does not know."""
        active_id, unknown = self._manifest.active.segment_id, self._unknown(self._manifest)
        newer = [path for path in unknown if (segment_id_of(path) or 0) >= active_id]
        if newer:  # Perhaps a writer has rolled since.
            later = self._unknown(ManifestStore(self._fs, self._layout).load_while_written())
            newer = [path for path in newer if path in later and has_record(self._fs, path)]
        for path in unknown:
            if path in newer:
                error = unknown_successor(self._layout, path)
                self.findings.append(Finding("damage", path, error.offset, error.reason, error.mend))
            elif (segment_id_of(path) or 0) < active_id:
                remedy = "`latewood cleanup` removes retired ones"
                self._warn(path, 0, "the manifest does not know this segment", remedy)

    def _unknown(self, manifest: Manifest) -> list[Path]:
        known = {manifest.entries[index].path for index in range(len(manifest.entries))} | {manifest.active.path}
        found = (path for path in self._fs.walk(self._layout.segments) if segment_id_of(path) is not None)
        return [path for path in found if self._layout.relative(path) not in known]

    def _gap_before(self, start: int, path: Path) -> None:
        """Report records that the manifest itself says are gone, or twice there.

        Only a rebuild that was told to accept the loss writes a manifest with a gap: the loss was decided on, and is
        no news.  A segment that goes missing later is still listed, and is damage.
        """
        if start > self._expected:
            problem = f"records {self._expected} to {start - 1} before it are lost: a rebuild accepted that"
            self._warn(path, 0, problem, "none is needed: readers meet DataLost there, and seek past it")
        elif start < self._expected:
            self._damage(path, 0, f"records {start} to {self._expected - 1} are in the segment before it, too")

    def _summary(self, path: Path, look: Look, *, torn_tail_ok: bool = False) -> SegmentSummary | None:
        try:
            summary = look()
        except NotFoundError:
            self._damage(path, 0, "the segment is missing")
            return None
        self.segments += 1
        self.records += summary.record_count
        self.bytes += summary.size
        if summary.problem and not torn_tail_ok:
            self._damage(path, summary.problem_offset, summary.problem)
            return None
        return summary

    def _damage(self, path: Path, offset: int, problem: str) -> None:
        self.findings.append(Finding("damage", path, offset, problem, "restore the file from a copy"))

    def _warn(self, path: Path, offset: int, problem: str, remedy: str) -> None:
        self.findings.append(Finding("warning", path, offset, problem, remedy))


def _seal_error(footer: SegmentFooter, entry: SegmentEntry, path: Path) -> CorruptError | None:
    try:
        check_seal(footer, entry, path)
    except CorruptError as error:
        return error
    return None
