"""A real ext4 whose power can be cut, and the program that writes a log on it meanwhile.

The disk is a file behind a loop device.  Shutting the file system down without its journal is what a power cut is to
it: what was not synced is gone, but for what the kernel happened to write earlier by itself.

Run as a program it appends until it dies, and says on standard output what it was promised, each line after the call
that promised it returned.
"""

import ctypes
import fcntl
import os
import random
import shutil
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

import latewood
from latewood import Queue, Record
from latewood.fs.file import PosixFile
from tests.patience import wait_until

# -- the disk -----------------------------------------------------------------------------------------

IMAGE_BYTES: Final = 64 * 2**20
SHUT_DOWN: Final = 0x8004587D
"""EXT4_IOC_SHUTDOWN, of include/uapi/linux/ext4.h."""
WITHOUT_JOURNAL: Final = 2
"""EXT4_GOING_FLAGS_NOLOGFLUSH: nothing more reaches the disk, the journal neither."""
_WRITE_AND_WAIT: Final = 2 | 4
"""SYNC_FILE_RANGE_WRITE and WAIT_AFTER."""
_PAGE_BYTES: Final = 4096
_FSCK_MENDED: Final = 1
_TOOL_S_MAX: Final = 60


class Unavailable(Exception):
    """This machine does not let us cut a disk's power; the text says why."""


class Kind(NamedTuple):
    """How a disk is made and mounted."""

    features: tuple[str, ...] = ()
    mount: str = "data=ordered"
    fsck: bool = False
    """Without a journal the file system itself needs mending after a power cut."""


KINDS: Final = {
    "ordered": Kind(),
    "writeback": Kind(mount="data=writeback,noauto_da_alloc"),
    "no journal": Kind(("-O", "^has_journal"), "defaults", fsck=True),
}


class RealDisk:
    """A file with an ext4 in it."""

    def __init__(self, directory: Path, kind: Kind) -> None:
        self._kind, self._image = kind, directory / "disk.img"
        self.root = directory / "mounted"
        self.root.mkdir()
        _check_tools()
        with self._image.open("wb") as image:
            image.truncate(IMAGE_BYTES)
        _require("mkfs.ext4", "-q", "-F", *kind.features, self._image)

    @contextmanager
    def mounted(self) -> Iterator[Self]:
        """Mount it, as after a power cut; unmount it whatever happens, which gives the loop device back too."""
        if self._kind.fsck and (code := _run("e2fsck", "-f", "-y", self._image).returncode) > _FSCK_MENDED:
            message = f"e2fsck ended with {code} on {self._image}"
            raise AssertionError(message)
        # The cut is in the file system: whether the machine below flushes its own disk makes tests slow, no better.
        _require("mount", "-o", f"loop,barrier=0,{self._kind.mount}", self._image, self.root)
        try:
            yield self
        except BaseException:
            if not self._unmounts():  # The traceback may hold a mapping: then the disk goes with the last of them.
                _run("umount", "--lazy", self.root)
            raise
        # Somebody who looks at a process, as ps does, holds its mappings for a moment after its death.
        wait_until(self._unmounts)
        # Mounted before that, it would be the same file system, which is shut down.
        wait_until(self._is_detached)

    def _unmounts(self) -> bool:
        return _run("umount", self.root).returncode == 0

    def _is_detached(self) -> bool:
        for path in Path("/sys/block").glob("loop*/loop/backing_file"):
            with suppress(OSError):  # Detached since we looked.
                if path.read_text().strip() == str(self._image):
                    return False
        return True

    def remove(self) -> None:
        """Delete the file."""
        self._image.unlink()

    def cut(self) -> None:
        """Cut the power."""
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUT_DOWN, struct.pack("I", WITHOUT_JOURNAL))
        except OSError as error:
            message = f"this kernel does not shut an ext4 down: {error}"
            raise Unavailable(message) from error
        finally:
            os.close(descriptor)

    def commit_journal(self, chance: random.Random) -> None:
        """Do what another program's fsync does: names and sizes of every file become durable, contents do not."""
        descriptor = os.open(self.root / "bystander", os.O_RDWR | os.O_CREAT)
        try:
            os.pwrite(descriptor, chance.randbytes(16), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def write_back(self, chance: random.Random) -> None:
        """Do what the kernel does when it likes to: write some pages of some files, and no names or sizes."""
        for path in sorted(self.root.rglob("*")):
            if path.is_file() and chance.random() < 0.5:
                _write_back(path, chance)


def _write_back(path: Path, chance: random.Random) -> None:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:  # Renamed since we looked.
        return
    try:
        pages = max(1, os.fstat(descriptor).st_size // _PAGE_BYTES)
        first = chance.randrange(pages)
        count = chance.randint(1, pages - first)
        libc = ctypes.CDLL(None, use_errno=True)
        first_byte, byte_count = ctypes.c_int64(first * _PAGE_BYTES), ctypes.c_int64(count * _PAGE_BYTES)
        libc.sync_file_range(descriptor, first_byte, byte_count, _WRITE_AND_WAIT)
    finally:
        os.close(descriptor)


def _check_tools() -> None:
    for tool in ("mkfs.ext4", "e2fsck", "mount", "umount"):
        if shutil.which(tool) is None:
            message = f"{tool} is not installed (Debian, Ubuntu: apt-get install e2fsprogs mount)"
            raise Unavailable(message)
    if os.geteuid():
        raise Unavailable("only root may mount a disk")


def _run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=_TOOL_S_MAX)


def _require(*command: str | Path) -> None:
    done = _run(*command)
    if done.returncode:
        message = f"{command[0]} ended with {done.returncode}: {done.stderr.strip()}"
        raise Unavailable(message)


# -- what is written ----------------------------------------------------------------------------------

_LENGTHS: Final = (0, 24, 40, 100, 7, 300, 1000, 64, 33, 5000, 1, 200, 12000)


class Mark(NamedTuple):
    """Which record it is: the number-th of one thread of one program's life."""

    life: int
    thread: int
    number: int

    @property
    def payload(self) -> bytes:
        """Bytes that no other record has."""
        name = f"{self.life}:{self.thread}:{self.number};".encode()
        filler = _LENGTHS[zlib.crc32(name) % len(_LENGTHS)]
        return name + (name * (filler // len(name) + 1))[:filler]


def mark_of(record: Record) -> Mark | None:
    """Say which record it is; None if nobody can have appended it."""
    try:
        mark = Mark(*map(int, record.payload.partition(b";")[0].split(b":")))
    except (TypeError, ValueError):
        return None
    return mark if (mark.payload, mark.life) == (record.payload, record.ext_id) else None


# -- the program --------------------------------------------------------------------------------------

READERS: Final = ("near", "far", "abroad")
SEGMENT_BYTES: Final = (16 * 1024, 64 * 1024)
_SAY: Final = threading.Lock()


def _say(*words: object) -> None:
    """Hand one line to the pipe, which then has it even if this program dies."""
    with _SAY:
        os.write(1, (" ".join(map(str, words)) + "\n").encode())


def _tell(job: Callable[[], None]) -> None:
    """Do something; if it fails, say so: before the cut that is a bug."""
    try:
        job()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a thread's top
        _say("failed", repr(error))


class _Program:
    """One life of a writer: threads that append, and that read, commit and clean up."""

    def __init__(self, path: Path, life: int, seed: int) -> None:
        self._path, self._life, self._seed = path, life, seed
        self._segment_bytes = SEGMENT_BYTES[seed % len(SEGMENT_BYTES)]

    def run(self) -> None:
        _say("ready")
        log = latewood.open(self._path, segment_bytes_max=self._segment_bytes, index_interval=16)
        _say("opened")
        jobs: list[Callable[[], None]] = [
            lambda: self._append_singly(log, 0),
            lambda: self._append_singly(log, 1),
            lambda: self._append_batches(log, 2),
            lambda: self._read(log),
            self._read_abroad,
        ]
        threads = [threading.Thread(target=_tell, args=(job,), daemon=True) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _append_singly(self, log: Queue, thread: int) -> None:
        number = 0
        while True:
            mark = Mark(self._life, thread, number)
            sequence = log.append(mark.payload, ext_id=self._life, durable=True)
            _say("durable", sequence, *mark)
            number += 1

    def _append_batches(self, log: Queue, thread: int) -> None:
        chance, number = random.Random(self._seed), 0
        while True:
            marks = [Mark(self._life, thread, number + more) for more in range(chance.randint(1, 60))]
            number += len(marks)
            durable = chance.random() < 0.5
            sequences = log.append_many([mark.payload for mark in marks], ext_id=self._life, durable=durable)
            if not durable:
                log.flush()
            for sequence, mark in zip(sequences, marks, strict=True):
                _say("durable", sequence, *mark)
            if chance.random() < 0.1:
                log.roll()
            for mark in (Mark(self._life, thread, number), Mark(self._life, thread, number + 1)):
                log.append(mark.payload, ext_id=self._life)  # Nobody is promised anything.
            number += 2

    def _read(self, log: Queue) -> None:
        chance = random.Random(self._seed)
        with log.reader("near") as near, log.reader("far") as far:
            while True:
                near.poll(chance.randint(1, 100), timeout=1.0)
                near.commit()
                _say("committed", "near", near.sequence)
                behind = near.sequence - far.sequence - chance.randint(100, 600)
                if behind > 0:
                    far.poll(behind)
                    far.commit()
                    _say("committed", "far", far.sequence)
                if chance.random() < 0.3:
                    log.cleanup()
                    _say("first", log.first_sequence)

    def _read_abroad(self) -> None:
        """As another process would, that cannot ask the writer what is durable."""
        with latewood.open(self._path, mode="r") as log, log.reader("abroad") as reader:
            while True:
                reader.poll(200, timeout=1.0)
                reader.commit()
                _say("committed", "abroad", reader.sequence)


def _forget_to_sync(*suffixes: str) -> None:
    """Plant a bug: files of these names are never synced."""
    sync = PosixFile.sync

    def planted(self: PosixFile) -> None:
        if not self.path.name.endswith(suffixes):
            sync(self)

    setattr(PosixFile, "sync", planted)  # noqa: B010 - a method may not be assigned to


def main(path: str, life: str, seed: str, *unsynced: str) -> None:
    if unsynced:
        _forget_to_sync(*unsynced)
    _tell(_Program(Path(path), int(life), int(seed)).run)


if __name__ == "__main__":
    main(*sys.argv[1:])
