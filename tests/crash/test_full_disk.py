"""The disk fills up under a writer: nothing acknowledged is lost, and it goes on once there is room.

A full disk is met before the seal, where it leaves the log as it was, or in the middle of a roll, which poisons the
writer: then reopening finishes the roll.  On a real tmpfs, in memory at every budget of bytes, and with the limit on
file sizes that `ulimit -f` sets.
"""

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from latewood import DiskFull, LatewoodError, LogOptions, NotFoundError, Poisoned, Queue
from latewood.fs import FileSystem, PosixFS
from latewood.log.layout import Layout
from latewood.queue.verify import verify_queue
from latewood.runtime import Store
from latewood.testing import FakeClock, MemFS
from tests.patience import SECONDS_MAX

PAGE_BYTES: Final = 4096
DISK_PAGES: Final = 33
TMPFS_OPTIONS: Final = LogOptions(segment_bytes_max=2 * PAGE_BYTES)
PAYLOAD_BYTES: Final = 700
RECORDS_MAX: Final = 2_000
"""More than any disk of these tests holds."""

MEMORY_ROOT: Final = Path("/q")
MEMORY_OPTIONS: Final = LogOptions(segment_bytes_max=512)
MEMORY_PAYLOAD_BYTES: Final = 60


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Recovery says what it cuts."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def payload_of(sequence: int, payload_bytes: int) -> bytes:
    return (b"%d " % sequence * payload_bytes)[:payload_bytes]


class Filler:
    """Writes to a log until there is no room, and knows what it was promised."""

    def __init__(self, fs: FileSystem, root: Path, options: LogOptions, payload_bytes: int) -> None:
        self.fs, self.root, self.options, self.payload_bytes = fs, root, options, payload_bytes
        self.acknowledged = 0
        self.log: Queue | None = None

    def open(self) -> Queue:
        self.log = Queue.open(self.root, self.options, fs=self.fs, clock=FakeClock(), background=False)
        assert self.log.next_sequence == self.acknowledged
        return self.log

    def append(self, count: int) -> None:
        log = self.log or self.open()
        for _ in range(count):
            sequence = log.append(payload_of(self.acknowledged, self.payload_bytes), durable=True)
            assert sequence == self.acknowledged
            self.acknowledged += 1

    def fill(self) -> LatewoodError:
        """Append until that fails; return why."""
        try:
            self.append(RECORDS_MAX)
        except (DiskFull, Poisoned) as error:
            return error
        raise AssertionError("the disk was never full")

    def check_readable(self) -> None:
        try:
            with Queue.open(self.root, mode="r", fs=self.fs, clock=FakeClock()) as log:
                found = [record.payload for record in log.scan()]
        except NotFoundError:
            found = []  # There was no room to make a log.
        assert found == [payload_of(sequence, self.payload_bytes) for sequence in range(self.acknowledged)]

    def reopen(self) -> None:
        if self.log:
            with pytest.raises(Poisoned):
                self.log.append(b"no record may follow a seal that failed")
            self.log.close()
        self.open()

    def goes_on(self, error: LatewoodError) -> None:
        """Append more, now that there is room: without reopening, unless the error says so."""
        if self.log is None or isinstance(error, Poisoned):
            self.reopen()
        self.append(20)
        assert self.log is not None
        self.log.close()
        self.check_readable()
        assert verify_queue(self.fs, Layout(self.root), deep=True).is_sound


# -- a real disk ------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "small", DISK_PAGES) as root:
        yield root


@contextmanager
def mounted(root: Path, pages: int) -> Iterator[Path]:
    """Mount a disk of so many pages."""
    root.mkdir()
    options = f"size={pages * PAGE_BYTES},mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "latewood-test", root], check=True)
    try:
        yield root
    finally:
        subprocess.run(["umount", "--lazy", root], check=True)


@pytest.mark.needs("mount")
def test_a_full_disk_is_named_and_the_log_goes_on_once_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(12 * PAGE_BYTES))
    # What is left is less than one segment, and more than the small files of a roll.
    filler = Filler(PosixFS(), small_disk / "log", LogOptions(segment_bytes_max=6 * PAGE_BYTES), PAYLOAD_BYTES)
    error = filler.fill()
    assert isinstance(error, DiskFull), error
    assert "No space left on device; free some space" in str(error)
    assert str(small_disk / "log") in str(error)
    for _ in range(3):
        with pytest.raises(DiskFull):
            filler.append(1)
    filler.check_readable()
    ballast.unlink()
    filler.goes_on(error)


@pytest.mark.needs("mount")
@pytest.mark.parametrize("durable", [False, True])
def test_a_disk_that_is_full_at_the_first_append_to_a_shard_is_named_and_the_shard_goes_on(
    tmp_path: Path, *, durable: bool
) -> None:
    with (
        mounted(tmp_path / "small", 1024) as root,
        Store.open(root / "lake") as store,
    ):
        db = store.create_database("clicks", shards=2, segment_bytes_max=2 * PAGE_BYTES)
        fill_up(root / "ballast")
        for _ in range(2):
            with pytest.raises(DiskFull, match="No space left on device; free some space"):
                db.append(b"x", key=b"a", durable=durable)
        assert not list(db.scan())
        (root / "ballast").unlink()
        db.append(b"y", key=b"a", durable=durable)
        assert [record.payload for record in db.scan()] == [b"y"]


def fill_up(ballast: Path) -> None:
    """Leave no page free."""
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(PAGE_BYTES))


@pytest.mark.parametrize("first", ["append", "append_many", "flush"])
def test_the_first_checkpoint_of_a_log_that_finds_no_room_leaves_it_as_it_was(first: str) -> None:
    fs = MemFS()
    Queue.open(MEMORY_ROOT, MEMORY_OPTIONS, fs=fs, clock=FakeClock(), background=False).close()
    with Queue.open(MEMORY_ROOT, MEMORY_OPTIONS, fs=fs, clock=FakeClock(), background=False) as log:
        fs.fail("pwrite", "index.meta", DiskFull("full"))
        for _ in range(2):
            with pytest.raises(DiskFull, match="full"):
                log.append_many([b"x", b"y"]) if first == "append_many" else log.append(b"x", durable=first == "flush")
        fs.heal()
        assert log.append(b"z", durable=True) == 0
    with Queue.open(MEMORY_ROOT, mode="r", fs=fs, clock=FakeClock()) as again:
        assert [record.payload for record in again.scan()] == [b"z"]


@pytest.mark.needs("mount")
@pytest.mark.parametrize("pages", range(14))
def test_whatever_step_of_a_roll_meets_the_full_disk(small_disk: Path, pages: int) -> None:
    """With one page more or less the disk is full at another step."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes((10 + pages) * PAGE_BYTES))
    filler = Filler(PosixFS(), small_disk / "log", TMPFS_OPTIONS, PAYLOAD_BYTES)
    error = filler.fill()
    filler.check_readable()
    ballast.unlink()
    filler.goes_on(error)


@pytest.mark.needs("mount")
def test_a_full_log_can_be_opened_and_read_while_the_disk_is_full(small_disk: Path) -> None:
    filler = Filler(PosixFS(), small_disk / "log", TMPFS_OPTIONS, PAYLOAD_BYTES)
    error = filler.fill()
    assert isinstance(error, DiskFull)
    assert filler.log is not None
    filler.log.close()
    filler.log = None
    filler.open()
    filler.check_readable()
    with pytest.raises(DiskFull):
        filler.append(RECORDS_MAX)
    filler.check_readable()


# -- every budget -----------------------------------------------------------------------------------------


def size_with(records: int) -> int:
    """Return what a log of so many records takes, while it is open."""
    fs = MemFS()
    Filler(fs, MEMORY_ROOT, MEMORY_OPTIONS, MEMORY_PAYLOAD_BYTES).append(records)
    return fs.used_bytes()


def fill_memory(capacity_bytes: int) -> LatewoodError:
    fs = MemFS(capacity_bytes)
    filler = Filler(fs, MEMORY_ROOT, MEMORY_OPTIONS, MEMORY_PAYLOAD_BYTES)
    error = filler.fill()
    assert str(error)
    filler.check_readable()
    fs.capacity_bytes = None
    filler.goes_on(error)
    return error


def test_at_every_budget_of_bytes(campaign: bool) -> None:  # noqa: FBT001
    # Five records fill a segment, so the second budget lets one roll more happen than the first.
    low, high = size_with(6), size_with(11)
    outcomes = {
        type(fill_memory(capacity_bytes))
        for capacity_bytes in range(0 if campaign else low, high + 1, 1 if campaign else 8)
    }
    assert outcomes == {DiskFull, Poisoned}, "both before the seal and after it"


def test_a_disk_too_small_for_any_log() -> None:
    for capacity_bytes in range(0, size_with(1), 7):
        fill_memory(capacity_bytes)


# -- a limit on the size of a file --------------------------------------------------------------------------

LIMITED: Final = """
import resource, sys
import latewood
path, limit = sys.argv[1], 32 * 1024
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
try:
    latewood.open(path + "-new", background=False)
except latewood.DiskFull as error:
    print("new:", error)
log = latewood.open(path, segment_bytes_max=2 * limit, background=False)
try:
    while True:
        print(log.append(b"x" * 1000, durable=True))
except latewood.DiskFull as error:
    print("full:", error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(log.append(b"x" * 1000, durable=True))
log.close()
"""


def test_a_limit_on_file_sizes_is_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "log"
    Queue.open(path, LogOptions(segment_bytes_max=8192)).close()
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, path], capture_output=True, text=True, check=True, timeout=SECONDS_MAX
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("new:")
    assert lines[-2].startswith("full:")
    for line in (lines[0], lines[-2]):
        assert "File too large" in line
        assert "ulimit -f" in line
    acknowledged = [int(line) for line in lines if line.isdigit()]
    assert acknowledged == list(range(len(acknowledged)))
    assert len(acknowledged) > 1
    with Queue.open(path) as log:
        assert [record.sequence for record in log.scan()] == acknowledged
        assert {record.payload for record in log.scan()} == {b"x" * 1000}
