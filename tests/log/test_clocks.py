"""Clocks of the program's own that are wrong, or fail: the caller is told, and the log goes on with the right time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import latewood
from latewood import Queue, UsageError
from latewood.catalog.tables import JobKind
from latewood.runtime import Store
from latewood.testing import MemFS
from tests.log.desk import ROOT, payloads
from tests.runtime.disk import quick_disk

NOON: Final = 1_700_000_000_000_000_000
WRONG: Final[dict[str, Any]] = {
    "negative": -1,
    "beyond a footer": 1 << 63,
    "beyond 64 bits": 1 << 64,
    "a fraction": 1.5,
    "nothing": None,
    "text": "noon",
}


class BrokenError(Exception):
    """What the clock of a program may raise."""


class Clock:
    """Tells what it was given."""

    def __init__(self) -> None:
        self.now: Any = NOON

    def now_ns(self) -> int:
        if isinstance(self.now, BaseException):
            raise self.now
        return self.now  # type: ignore[no-any-return]


def append_often(log: Queue) -> None:
    for _ in range(8):
        log.append(b"x" * 100)


CALLS: dict[str, Callable[[Queue], object]] = {
    "append": lambda log: log.append(b"x"),
    "append until it rolls": append_often,
    "append_many": lambda log: log.append_many([b"x"] * 40),
    "roll": lambda log: log.roll(),
    "a reader that begins": lambda log: log.reader("r", "latest"),
}


@pytest.mark.parametrize("options", [{}, {"flush_ms": 1}, {"segment_age_max_ms": 1000}], ids=str)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("wrong", [*WRONG, "an error"])
def test_a_clock_that_is_wrong_is_an_error_that_does_no_harm(name: str, options: dict[str, Any], wrong: str) -> None:
    clock, fs = Clock(), MemFS()
    with latewood.open(ROOT, fs=fs, clock=clock, background=False, segment_bytes_max=512, **options) as log:
        log.append(b"before")
        clock.now = WRONG.get(wrong, BrokenError("broken"))
        error, match = (BrokenError, "broken") if wrong == "an error" else (UsageError, "what the clock tells")
        with pytest.raises(error, match=match):
            CALLS[name](log)
        clock.now = NOON + 1
        log.append(b"after", durable=True)
        assert log.roll() is not None
        assert payloads(log)[0] == b"before"
        assert payloads(log)[-1] == b"after"
    assert payloads(latewood.open(ROOT, fs=fs, mode="r"))[-1] == b"after"


@pytest.mark.parametrize("wrong", WRONG)
def test_no_log_is_made_with_a_clock_that_is_wrong(wrong: str) -> None:
    clock, fs = Clock(), MemFS()
    clock.now = WRONG[wrong]
    with pytest.raises(UsageError, match="what the clock tells"):
        latewood.open(ROOT, fs=fs, clock=clock)
    with latewood.open(ROOT, fs=fs) as log:
        assert log.append(b"x") == 0


@pytest.mark.parametrize("wrong", ["negative", "beyond 64 bits", "a fraction", "an error"])
def test_a_store_whose_clock_is_wrong_goes_on_with_the_right_time(tmp_path: Path, wrong: str) -> None:
    clock = Clock()
    error = BrokenError if wrong == "an error" else UsageError
    with quick_disk(tmp_path) as directory, Store.open(directory / "lake", clock=clock) as store:
        db = store.create_database("clicks", shards=2)
        db.append(b"before", key=b"a")
        clock.now = WRONG.get(wrong, BrokenError("broken"))
        for use in (
            lambda: db.append(b"x", key=b"a"),
            lambda: store.create_database("other"),
            lambda: store.enqueue(JobKind.FLUSH, "clicks"),
            lambda: db.reader("r"),
        ):
            with pytest.raises(error):
                use()
        clock.now = NOON + 1_000_000
        db.append(b"after", key=b"a", durable=True)
        store.run_job(JobKind.FLUSH, "clicks", seal=True)
        assert [record.payload for record in db.scan()] == [b"before", b"after"]
        store.create_database("other").append(b"x")
