"""The limits of this machine: memory, page cache, disk and scheduler, with nothing of ours in between."""

import ctypes
import mmap
import os
import shutil
import time
from pathlib import Path
from typing import Final

from bench.measure import MiB, Sample, Stopwatch, latencies
from bench.processes import start_child

_SEGMENT_BYTES: Final = 64 * MiB
_CHUNK_BYTES: Final = MiB
_PIECE_BYTES: Final = 256 << 10
_ROUNDS_OF_MEMCPY: Final = 256
_libc: Final = ctypes.CDLL(None)
_libc.memchr.restype = ctypes.c_void_p
_libc.memchr.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]


class Memcpy:
    """Copy a mebibyte to one place after another, more than a cache holds: nothing that stores can be faster."""

    def __init__(self, directory: Path) -> None:
        del directory

    def prepare(self) -> None:
        self._source, self._target = (
            bytes(range(256)) * (_CHUNK_BYTES // 256),
            bytearray(_ROUNDS_OF_MEMCPY * _CHUNK_BYTES),
        )

    def round(self) -> Sample:
        target, source = memoryview(self._target), self._source
        watch = Stopwatch()
        for number in range(_ROUNDS_OF_MEMCPY):
            at = number * _CHUNK_BYTES
            target[at : at + _CHUNK_BYTES] = source
        return watch.per(_ROUNDS_OF_MEMCPY * _CHUNK_BYTES)

    def close(self) -> None:
        pass


class SequentialWrite:
    """write() of 1 MiB into fresh files of 64 MiB; with `sync`, each is made durable, as a roll does."""

    def __init__(self, directory: Path, megabytes: int, *, sync: bool) -> None:
        self._path, self._files, self._sync = directory / f"raw-{sync}", megabytes * MiB // _SEGMENT_BYTES, sync

    def prepare(self) -> None:
        self._chunk = os.urandom(_CHUNK_BYTES)

    def round(self) -> Sample:
        self._path.mkdir()
        watch = Stopwatch()
        for number in range(self._files):
            descriptor = os.open(self._path / str(number), os.O_WRONLY | os.O_CREAT, 0o600)
            for _ in range(_SEGMENT_BYTES // _CHUNK_BYTES):
                os.write(descriptor, self._chunk)
            if self._sync:
                os.fdatasync(descriptor)
            os.close(descriptor)
        sample = watch.per(self._files * _SEGMENT_BYTES)
        shutil.rmtree(self._path)
        return sample

    def close(self) -> None:
        pass


class PageCacheRead:
    """Files in the page cache through fresh mappings: copied out piece by piece, or only looked at by memchr."""

    def __init__(self, directory: Path, megabytes: int, *, copied: bool) -> None:
        self._path, self._files = directory / "cached", megabytes * MiB // _SEGMENT_BYTES
        self._look = self._copy_out if copied else self._look_for_zero
        self._piece = ctypes.create_string_buffer(_PIECE_BYTES)

    def prepare(self) -> None:
        self._path.mkdir()
        for number in range(self._files):
            (self._path / str(number)).write_bytes(b"\1" * _SEGMENT_BYTES)

    def round(self) -> Sample:
        watch = Stopwatch()
        for number in range(self._files):
            descriptor = os.open(self._path / str(number), os.O_RDWR)
            mapping = mmap.mmap(descriptor, _SEGMENT_BYTES)
            start = ctypes.c_char.from_buffer(mapping)
            self._look(ctypes.addressof(start))
            del start
            mapping.close()
            os.close(descriptor)
        return watch.per(self._files * _SEGMENT_BYTES)

    def _copy_out(self, start: int) -> None:
        for at in range(start, start + _SEGMENT_BYTES, _PIECE_BYTES):
            ctypes.memmove(self._piece, at, _PIECE_BYTES)

    @staticmethod
    def _look_for_zero(start: int) -> None:
        assert _libc.memchr(start, 0, _SEGMENT_BYTES) is None

    def close(self) -> None:
        shutil.rmtree(self._path)


class DurableWrite:
    """write() + fdatasync(), one record after another: to a growing file, or into a file of durable zeros."""

    def __init__(self, directory: Path, record_bytes: int, records: int, *, growing: bool) -> None:
        self._path = directory / f"durable-{record_bytes}-{growing}"
        self._record, self._records, self._growing = b"r" * record_bytes, records, growing

    def prepare(self) -> None:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        if not self._growing:
            for _ in range(_SEGMENT_BYTES // 65536):
                os.write(self._descriptor, bytes(65536))
            os.lseek(self._descriptor, 0, os.SEEK_SET)
        os.fsync(self._descriptor)

    def round(self) -> Sample:
        times = []
        for _ in range(self._records):
            start = time.perf_counter_ns()
            os.write(self._descriptor, self._record)
            os.fdatasync(self._descriptor)
            times.append(time.perf_counter_ns() - start)
        return latencies(times)

    def close(self) -> None:
        os.close(self._descriptor)
        self._path.unlink()


class PipeWake:
    """The same ticks as the tail, through a pipe."""

    def __init__(self, directory: Path, records: int) -> None:
        del directory
        self._records = records

    def prepare(self) -> None:
        pass

    def round(self) -> Sample:
        child = start_child("ticks", str(self._records))
        assert child.stdout is not None
        late = []
        for _ in range(self._records):
            raw = os.read(child.stdout.fileno(), 8)
            late.append(time.monotonic_ns() - int.from_bytes(raw, "little"))
        child.wait()
        child.stdout.close()
        return latencies(late)

    def close(self) -> None:
        pass
