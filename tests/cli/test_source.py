"""Lines from a pipe, in whatever pieces they come."""

import io
import os
import signal
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.cli.interruption import Interruption
from latewood.cli.source import LineSource


class Pipe(NamedTuple):
    write_end: int

    def write(self, data: bytes) -> None:
        os.write(self.write_end, data)

    def close(self) -> None:
        os.close(self.write_end)


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    """Return the other end of stdin."""
    read_end, write_end = os.pipe()
    with os.fdopen(read_end) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        yield Pipe(write_end)


def test_what_has_arrived_is_handed_on_at_once(pipe: Pipe) -> None:
    source = LineSource(100)
    pipe.write(b"one\ntwo\nthr")
    assert source.wait(None)
    assert source.read() == [b"one", b"two"]
    pipe.write(b"ee\n")
    assert source.read() == [b"three"]
    pipe.close()
    assert source.read() == []
    assert source.ended


def test_waiting_has_an_end(pipe: Pipe) -> None:
    source = LineSource(100)
    assert not source.wait(0)
    pipe.write(b"a")
    assert source.wait(0)
    pipe.close()
    assert source.read() == []
    assert source.wait(None)
    assert source.read() == [b"a"]
    assert source.ended


def test_a_line_that_is_too_long_is_handed_on_unfinished(pipe: Pipe) -> None:
    source = LineSource(5)
    pipe.write(b"12345")
    assert source.read() == []
    pipe.write(b"6")
    assert source.read() == [b"123456"]
    pipe.close()


@given(st.binary(max_size=200), st.lists(st.integers(1, 20)))
def test_lines_do_not_depend_on_the_pieces_in_which_they_come(data: bytes, sizes: list[int]) -> None:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    pieces = [piece for piece in [*pieces, data[at:]] if piece]
    source = LineSource.__new__(LineSource)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        source.__init__(1000)  # type: ignore[misc]
        patch.setattr(source, "_read", lambda: pieces.pop(0) if pieces else b"")
        found = []
        while not source.ended:
            found += source.read()
    expected = data.split(b"\n")
    assert found == (expected if expected[-1] else expected[:-1])


def test_ctrl_c_waits_for_a_good_moment() -> None:
    interruption = Interruption()
    with interruption.held_back():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), interruption.allowed():
            pytest.fail("it was pressed before")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_acts_at_once_where_it_may() -> None:
    interruption = Interruption()
    with interruption.held_back(), pytest.raises(KeyboardInterrupt), interruption.allowed():
        signal.raise_signal(signal.SIGINT)
