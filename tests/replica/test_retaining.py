"""When a node obeys what partitions may forget, and when a leader decides: one does not keep it from the other."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from latewood.queue.retention import RetentionPolicy
from latewood.replica import retaining
from latewood.replica.directory import DirectoryMachine, LowMark
from latewood.replica.retaining import Retainer
from latewood.testing import MemFS
from latewood.testing.fake_clock import FakeClock


def test_a_reader_that_holds_something_here_keeps_nobody_from_deciding(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = DirectoryMachine()
    directory.marks = {7: LowMark(7, 1, 100)}
    monkeypatch.setattr(retaining, "directory_of", lambda _: directory)
    done: list[str] = []

    async def story() -> None:
        core = cast("Any", SimpleNamespace(is_lent=False, is_leading=True))
        retainer = Retainer(core, MemFS(), FakeClock(), RetentionPolicy(max_bytes=1), cast("Any", None), 5)

        async def drop(*_: object) -> None:
            done.append("drop")
            retainer._is_held = True  # A reader of the files holds it, whatever is tried.

        async def decide(*_: object) -> None:
            done.append("decide")

        monkeypatch.setattr(retainer, "_drop", drop)
        monkeypatch.setattr(retainer, "_decide", decide)
        for _ in range(20):
            retainer.tick()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(story())
    assert done == ["drop", *["drop", "decide"] * 4]
