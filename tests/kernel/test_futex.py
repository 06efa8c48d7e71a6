"""Waking readers: the words, and then the real thing between two processes."""

import importlib
import mmap
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.kernel import echo
from tests.kernel.conftest import KERNELS
from tests.kernel.packing import appender

ROUNDS = 2000
ROOT = Path(__file__).parents[2]


def words(wake: bytearray | mmap.mmap) -> tuple[int, int]:
    flag, epoch = struct.unpack_from("<II", wake)
    return flag, epoch


def test_arming_raises_the_flag_and_tells_the_epoch(kernel: ModuleType) -> None:
    wake = bytearray(struct.pack("<II", 0, 41))
    assert kernel.arm(wake) == 41
    assert words(wake) == (1, 41)
    assert kernel.arm(wake) == 41


def test_waking_lowers_the_flag_and_moves_the_epoch(kernel: ModuleType) -> None:
    wake = bytearray(struct.pack("<II", 1, 0xFFFFFFFF) + b"rest")
    kernel.wake_all(wake)
    assert words(wake) == (0, 0)
    kernel.wake_all(wake)
    assert words(wake) == (0, 1)
    assert wake[8:] == b"rest"


def test_an_append_wakes_only_who_has_armed(kernel: ModuleType) -> None:
    wake = bytearray(8)
    writer = appender(kernel, bytearray(1024), wake=wake)
    writer.append(b"x")
    assert words(wake) == (0, 0)
    kernel.arm(wake)
    writer.append(b"x")
    assert words(wake) == (0, 1)
    writer.append(b"x")
    assert words(wake) == (0, 1)


def test_a_batch_wakes_once_and_an_empty_one_never(kernel: ModuleType) -> None:
    wake = bytearray(8)
    writer = appender(kernel, bytearray(1024), wake=wake)
    kernel.arm(wake)
    assert writer.append_many([], 0, 0, None) == 0
    assert words(wake) == (1, 0)
    assert writer.append_many([b"x"] * 5, 0, 0, None) == 5
    assert words(wake) == (0, 1)
    kernel.arm(wake)
    writer.close()
    assert writer.append(b"x") == -1
    assert words(wake) == (1, 1)


def test_waiting_on_a_past_epoch_returns_at_once(kernel: ModuleType) -> None:
    with mmap.mmap(-1, 4096) as wake:
        epoch = kernel.arm(wake)
        kernel.wake_all(wake)
        kernel.wait(wake, epoch, 2**64 - 1)
        assert words(wake) == (0, 1)


def test_waiting_ends_with_the_timeout(kernel: ModuleType) -> None:
    with mmap.mmap(-1, 4096) as wake:
        kernel.wait(wake, 0, 0)
        kernel.wait(wake, 0, 1)
        kernel.wait(wake, 0, 1_000_000)
        assert words(wake) == (0, 0)


@pytest.mark.parametrize(("epoch", "timeout_ns"), [(-1, 0), (2**32, 0), (0, -1), (0, 2**64)])
def test_an_epoch_is_a_u32_and_a_timeout_a_u64(kernel: ModuleType, epoch: int, timeout_ns: int) -> None:
    with pytest.raises(OverflowError):
        kernel.wait(bytearray(8), epoch, timeout_ns)


@pytest.mark.parametrize("name", ["arm", "wake_all"])
def test_a_wake_buffer_is_eight_writable_bytes(kernel: ModuleType, name: str) -> None:
    with pytest.raises(ValueError, match="8 bytes"):
        getattr(kernel, name)(bytearray(7))
    with pytest.raises(TypeError):
        getattr(kernel, name)(bytes(8))
    with pytest.raises(TypeError):
        getattr(kernel, name)("12345678")


def test_a_waiting_thread_lets_others_run_and_is_woken(kernel: ModuleType) -> None:
    with mmap.mmap(-1, 4096) as wake:
        epoch = kernel.arm(wake)
        woken = threading.Event()

        def sleeper() -> None:
            kernel.wait(wake, epoch, echo.LONG_NS)
            woken.set()

        thread = threading.Thread(target=sleeper)
        thread.start()
        # Whether it sleeps already or not: the epoch moves, so it comes back.
        kernel.wake_all(wake)
        assert woken.wait(60)
        thread.join()


def start_echo(name: str, path: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "tests.kernel.echo", name, str(path), str(ROUNDS)]
    return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.timeout(120)  # less than one missed wake would take
@pytest.mark.parametrize("there", KERNELS)
@pytest.mark.parametrize("here", KERNELS)
def test_no_wake_is_missed_between_processes(tmp_path: Path, here: str, there: str) -> None:
    path = tmp_path / "shared"
    path.write_bytes(bytes(echo.file_bytes(ROUNDS)))
    kernel = importlib.import_module(echo.MODULES[here])
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping, memoryview(mapping) as memory:
        other = start_echo(there, path)
        try:
            side: Any = echo.Side(kernel, memory, ROUNDS, 0)
            for _ in range(ROUNDS):
                side.throw()
                side.catch()
            waits, _ = other.communicate(timeout=60)
        finally:
            other.kill()
            other.wait()
        assert other.returncode == 0
        assert side.waits + int(waits) > 0, "nobody ever slept, so nothing was tested"
        del side
