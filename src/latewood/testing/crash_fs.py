"""A disk that can lose power: what is not synced may be lost, in every way that a disk is allowed to.

The model, after ALICE (Pillai et al., OSDI 2014):

- Contents are sectors.  Until the file is synced, each one on its own is on disk as it was synced or as it
  was at any step boundary since.
- A file's length is volatile until the file is synced, and independent of its sectors.
- Names are volatile until their directory is synced; syncing a file does not save its name.  The rules for
  which of them go together are in `name_journal`.
- `make_directory` is durable on return, as the protocol says.
- A sync that fails leaves its sectors in doubt for good: the kernel takes the pages for clean and a later
  sync skips them, unless they are written again.  (`failed_sync_drops` turns that off.)

A step boundary is the beginning and the end of every operation that changes the disk, and `step()`.  Stores
through a mapping are found there, by comparing.
"""

import itertools
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from latewood.testing.disk_image import DirectoryImage, load
from latewood.testing.file_history import FileHistory
from latewood.testing.mem_fs import MemFS, NameChange
from latewood.testing.name_journal import NameJournal, NameOperation
from latewood.testing.node import Directory, Inode
from latewood.testing.power_cut import PowerCut

TEAR_BYTES: Final = (512, 4096)
"""What disks write at once: the old sector and the new."""

StepCallback = Callable[["CrashFS", str], None]


@dataclass(slots=True)
class _IgnoredSync:
    """A planted bug: syncs by this name do nothing; all of them, or the one that `skip` others precede."""

    name_suffix: str
    skip: int | None

    def meets(self, name: str) -> bool:
        if not name.endswith(self.name_suffix):
            return False
        if self.skip is None:
            return True
        self.skip -= 1
        return self.skip == -1


@dataclass(frozen=True, slots=True)
class _Cut:
    step: str
    note: Hashable
    image: DirectoryImage


class CrashFS(MemFS):
    """A MemFS that knows what a power cut would leave.  Any thread may call it."""

    on_step: StepCallback | None = None
    """Called with the file system and the step's name after every step, on the thread that made it."""

    failed_sync_drops: bool = True
    """Whether a failed sync leaves its pages clean but unwritten, as Linux does."""

    note: Hashable = None
    """Whatever a test wants to know of the moment of a cut, such as how much was acknowledged by then.

    Survivors carry the note of their moment, and `cuts_during` takes equal disks under different
    notes for different: a state that is legal before an acknowledgement may be a loss after it.
    """

    def __init__(self, capacity_bytes: int | None = None, *, tear_bytes: int = TEAR_BYTES[0]) -> None:
        if tear_bytes not in TEAR_BYTES:
            raise ValueError(f"tear_bytes is {tear_bytes}, not one of {TEAR_BYTES}")
        super().__init__(capacity_bytes)
        self.tear_bytes = tear_bytes
        self.sync_calls: list[str] = []
        self._ignored: list[_IgnoredSync] = []
        self._journal = NameJournal()
        self._histories: dict[Inode, FileHistory] = {}
        self._observed: dict[Inode, None] = {}
        self._mapped: dict[Inode, None] = {}
        self._now = 0
        self._watchers: list[Callable[[str], None]] = []

    def step(self, name: str = "step") -> None:
        """Make a step boundary here, so that what mappings hold now is a version that may survive."""
        with self._mutex:
            self._observe()
            self._announce(name)

    def survivors(self, limit: int = 1000, seed: int = 0) -> Iterator[Self]:
        """Yield a disk for every state that a power cut may leave now, each once.

        All states, if at most `limit` combinations make them.  Otherwise a sample that the seed
        determines: nothing and everything of what is unsynced, each unit lost alone and kept alone, every
        moment since the last sync, and random combinations until there are `limit`.
        """
        cut, note = self._power_cut(), self.note
        return (self._revived(image, note) for image in cut.images(limit, seed))

    def after_power_cut(self) -> Self:
        """Return the disk that lost all it could lose."""
        return next(self.survivors(limit=1))

    def cuts_during(
        self, action: Callable[[Self], object], limit: int = 200, seed: int = 0
    ) -> Iterator[tuple[str, Self]]:
        """Run `action` now, then yield (step, survivor) for power cuts at every step of it.

        Each step gives at most `limit` states; a state that an earlier step gave under the same note is
        not given again.  The first step is "start" and the last one "end".
        """
        cuts: list[_Cut] = []
        seen: set[tuple[Hashable, int]] = set()

        def watch(step: str) -> None:
            images = PowerCut(self.root, self._journal, self._histories).images(limit, seed + self._now)
            for image in itertools.islice(images, limit):
                if (self.note, image.fingerprint) not in seen:
                    seen.add((self.note, image.fingerprint))
                    cuts.append(_Cut(step, self.note, image))

        self._watchers.append(watch)
        try:
            self.step("start")
            action(self)
            self.step("end")
        finally:
            self._watchers.remove(watch)
        return ((cut.step, self._revived(cut.image, cut.note)) for cut in cuts)

    def ignore_sync(self, path_suffix: str, *, skip: int | None = None) -> None:
        """Plant a bug: syncs of files and directories whose path ends so do nothing, and do not say so.

        A whole name out of `sync_calls` works too.  With `skip`, only one call is ignored: that after
        `skip` others that match.  An ignored `make_directory` makes the directory, but not durably.
        """
        self._ignored.append(_IgnoredSync(path_suffix, skip))

    # What follows refines MemFS.

    @contextmanager
    def changing(self, op: str, *paths: Path) -> Iterator[None]:
        """Bracket an operation with step boundaries."""
        with self._mutex:
            name = f"{'create' if op == 'open' else op} {' -> '.join(str(path) for path in paths)}"
            if self._observe():
                self._announce(f"stores before {name}")
            with super().changing(op, *paths):
                yield
            self._observe()
            self._announce(name)

    def sync_file(self, path: Path, inode: Inode) -> None:
        """Make one inode durable, or leave it in doubt."""
        try:
            super().sync_file(path, inode)
        except Exception:
            if self.failed_sync_drops:
                with self._mutex:
                    self._history(inode).drop()
            raise

    def settle(self, path: Path, inode: Inode) -> None:
        """Make durable what was there when the sync began."""
        if self._is_heeded(f"sync {path}"):
            self._history(inode).settle()

    def settle_directory(self, path: Path, directory: Directory) -> None:
        """Make a directory's names durable, and forget files that no cut can bring back."""
        if self._is_heeded(f"sync_directory {path}"):
            self._journal.settle_directory(directory)
            found = set(self._journal.snapshot(self.root).inodes())
            self._histories = {inode: history for inode, history in self._histories.items() if inode in found}
            self._mapped = {inode: None for inode in self._mapped if inode in found}

    def change_names(self, *changes: NameChange) -> None:
        """Change names, and remember that a cut may undo it."""
        self._change_names(*changes)

    def add_directory(self, path: Path, change: NameChange) -> None:
        """Add the name of a new directory, durably."""
        operations = self._change_names(change)
        if self._is_heeded(f"make_directory {path}"):
            self._journal.settle(operations)

    def touch(self, inode: Inode, start: int, stop: int) -> None:
        """Keep what is there, before it changes."""
        self._history(inode).dirty(start, stop)
        self._observed[inode] = None

    def share(self, inode: Inode) -> None:
        """Keep what is there, and compare from now on: stores through a mapping come unannounced."""
        self._history(inode)
        self._mapped[inode] = None

    def _change_names(self, *changes: NameChange) -> list[NameOperation]:
        operations = self._journal.record(self._now, changes)
        super().change_names(*changes)
        return operations

    def _history(self, inode: Inode) -> FileHistory:
        if inode not in self._histories:
            self._histories[inode] = FileHistory(inode.content(), self.tear_bytes)
        return self._histories[inode]

    def _is_heeded(self, name: str) -> bool:
        self.sync_calls.append(name)
        met = [ignored.meets(name) for ignored in self._ignored]  # all of them: each counts its calls
        return not any(met)

    def _observe(self) -> bool:
        """Begin a new step; say whether any file has changed since the last one."""
        self._now += 1
        inodes, self._observed = self._mapped | self._observed, {}
        news = [self._history(inode).observe(inode.content(), self._now) for inode in inodes]
        return any(news)

    def _announce(self, step: str) -> None:
        for watch in self._watchers:
            watch(step)
        if self.on_step is not None:
            self.on_step(self, step)

    def _power_cut(self) -> PowerCut:
        with self._mutex:
            self._observe()
            return PowerCut(self.root, self._journal, self._histories)

    def _revived(self, image: DirectoryImage, note: Hashable) -> Self:
        survivor = type(self)(self.capacity_bytes, tear_bytes=self.tear_bytes)
        survivor.root, survivor.note = load(image), note
        return survivor
