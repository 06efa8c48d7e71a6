"""A batch appears at once: a reader sees none of it, or all."""

import dis
import linecache
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

from latewood.kernel import pure
from latewood.kernel.pure_appender import Appender
from tests.kernel import flood
from tests.kernel.conftest import KERNELS
from tests.kernel.packing import EMPTY_STATE, appender, scan_all

ROOT = Path(__file__).parents[2]
BATCH = 5


@contextmanager
def after_every_line(look: Callable[[], None]) -> Iterator[None]:
    """Call `look` before each line of the pure appender but a `with`, on the way out of which nothing can come in."""

    def trace(frame: FrameType, _event: str, _argument: Any) -> Any:
        if "pure_appender" not in frame.f_code.co_filename and frame.f_code.co_name != "_publish":
            return None
        if not linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
            look()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def sizes_seen(writer: Any, buffer: bytearray) -> set[int]:
    """Return how many records a reader may see while one batch is appended."""
    seen: set[int] = set()
    with after_every_line(lambda: seen.add(len(pure.scan(buffer, 0, len(buffer), 0, 99, 9999)[0]))):
        assert writer.append_many([b"x" * 10] * BATCH, 0, 0, 1) == BATCH
    return seen | {len(scan_all(pure, buffer)[0])}


def test_the_pure_batch_is_seen_whole_or_not_at_all() -> None:
    buffer = bytearray(1024)
    assert sizes_seen(appender(pure, buffer), buffer) == {0, BATCH}


class FirstMarkFirst(Appender):
    """A planted bug: the first mark goes in before the others."""

    def _publish(self, staged: Any, blob: bytes | bytearray, mark: int) -> None:
        start, size = self._state.offset, 40
        self._view[start : start + size] = blob[:size]
        self._words[start + 4 >> 2] = mark
        self._view[start + size : start + len(blob)] = blob[size:]
        self._state = staged.state


def test_a_first_mark_that_is_not_last_would_be_seen() -> None:
    buffer = bytearray(1024)
    planted = FirstMarkFirst(buffer, None, 0, 100, 0, 2, *EMPTY_STATE)
    planted.allow(1024, 1024, 99)
    assert sizes_seen(planted, buffer) == {0, 1, BATCH}


def interrupted(stop: int) -> tuple[bool, Any, bytearray]:
    """Append one record and then two, interrupted after so many lines; tell whether they were that many."""
    buffer = bytearray(1024)
    writer = appender(pure, buffer, interval=1)
    lines = iter(range(stop))

    def interrupt() -> None:
        if next(lines, None) is None:
            raise KeyboardInterrupt

    try:
        with after_every_line(interrupt):
            writer.append(b"one", 0, 1)
            writer.append_many([b"two", b"three"], 0, 0, 2)
    except KeyboardInterrupt:
        return True, writer, buffer
    return False, writer, buffer


@pytest.mark.timeout(60)
def test_an_interrupt_anywhere_leaves_every_record_counted_once() -> None:
    stop, between = 0, 0
    while True:
        stop += 1
        was_interrupted, writer, buffer = interrupted(stop)
        seen = len(scan_all(pure, buffer)[0])
        if any(buffer[writer.offset :]):
            between += 1
            continue
        assert seen == writer.count
        assert writer.append(b"after", 0, 3) == 100 + seen
        entries, end, _ = scan_all(pure, buffer)
        assert (len(entries), entries[-1].payload, end) == (seen + 1, b"after", writer.offset)
        assert writer.index() == pure.index_records(buffer, 0, len(buffer), 99, 1, 0)
        if not was_interrupted:
            break
    assert stop > 30
    # The stores are neighbouring assignments.  This tracer comes between them, three times for the one record and twice
    # for the batch; a signal cannot, because the interpreter looks for signals at calls and jumps only.
    assert between == 5


@pytest.mark.parametrize("function", [Appender.append, Appender._publish])
def test_no_call_comes_between_the_stores(function: Callable[..., Any]) -> None:
    code = [(one.opname, one.argval) for one in dis.get_instructions(function)]
    stop = code.index(("STORE_ATTR", "_state"))
    start = max(at for at in range(stop) if code[at] == ("LOAD_ATTR", "_view"))
    between = [name for name, _ in code[start:stop]]
    assert sum(name.startswith("STORE") for name in between) >= 2
    assert not [name for name in between if "CALL" in name or "JUMP" in name]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("there", KERNELS)
def test_another_process_sees_only_whole_batches(tmp_path: Path, kernel: ModuleType, there: str) -> None:
    batches, batch = 1000, 300
    path = tmp_path / "shared"
    path.write_bytes(bytes(flood.file_bytes(batches, batch)))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "tests.kernel.flood", there, str(path), str(batches), str(batch)]
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        with subprocess.Popen(command, env=environment, cwd=ROOT) as writer:
            offset = count = 0
            while count < batches * batch:
                assert writer.poll() in {None, 0}
                seen, offset, state = kernel.verify(mapping, offset, len(mapping))[:3]
                assert state in {kernel.EMPTY, kernel.END}
                assert seen % batch == 0
                count += seen
        assert writer.returncode == 0
        assert kernel.verify(mapping, 0, len(mapping))[0] == batches * batch
