"""The story of the demo, act by act, and what came of it.

A generator writes events, is killed, and goes on.  A reader follows.  Jobs move what is sealed from the log to chunks,
to an archive, and off this disk.  A stream adds up.  At the end everything is counted again.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from examples.demo.events import Tally, problems, tally
from examples.demo.pipeline import SparkFailed, Stream, Totals, in_one_line, start_session
from examples.demo.processes import DATABASE, Follower, Run, follower, run_generator
from latewood.cli.store_figures import TierFigures, live_chunks, tier_figures
from latewood.runtime import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

SHARDS: Final = 2
AUDITED: Final = 0.35
"""The share of the events that the second reader has read."""


class Size(NamedTuple):
    """How much is written."""

    events: int
    """By each run of the generator."""
    segment_bytes: int
    chunk_bytes: int
    batch: int
    """Of the stream."""


FULL: Final = Size(30_000, 512 * 1024, 96 * 1024, 30_000)
SHORT: Final = Size(3_000, 64 * 1024, 16 * 1024, 4_000)


@dataclass
class Outcome:
    """What happened."""

    runs: dict[int, Run] = field(default_factory=dict)
    read: int = 0
    is_read_in_order: bool = False
    tally: Tally = field(default_factory=lambda: Tally({}, {}))
    totals: Totals | None = None
    segments: list[tuple[Any, ...]] = field(default_factory=list)
    tiers: list[TierFigures] = field(default_factory=list)
    missing: str | None = None
    """Why there was no Spark, or none to the end."""

    @property
    def acknowledged(self) -> Mapping[int, int]:
        """How many events each run was told are durable."""
        return {number: run.acknowledged for number, run in self.runs.items()}

    def problems(self) -> list[str]:
        """Return everything that is not as it must be."""
        killed = {number for number, run in self.runs.items() if run.was_killed}
        wrong = problems(self.tally, self.acknowledged, killed)
        if self.read != self.tally.events or not self.is_read_in_order:
            wrong.append(f"billing has read {self.read:,} events, and {self.tally.events:,} are there")
        if self.totals is not None and self.totals.pages != self.tally.pages:
            wrong.append(f"the stream has added up {dict(self.totals.pages)}, and there are {dict(self.tally.pages)}")
        if self.missing is not None:
            wrong.append("nothing was added up by a stream, or counted with SQL, to the end: Spark is missing")
        return wrong


class Progress:
    """One line on stderr that is overwritten; nothing at all unless stderr is a terminal."""

    def __init__(self) -> None:
        """Keep stderr as it is now: it leads elsewhere while Spark starts."""
        self._stream = os.fdopen(os.dup(sys.stderr.fileno()), "w") if sys.stderr.isatty() else None

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._stream:
            print(f"\r\x1b[K{text}", end="", file=self._stream, flush=True)


class Story:
    """Tells the story in a directory.  One thread; another plays the first acts while Spark starts."""

    def __init__(self, home: Path, size: Size, progress: Progress) -> None:
        self.home, self.lake, self.size, self.progress = home, home / "lake", size, progress
        self.outcome = Outcome()
        self._stream: Stream | None = None

    def tell(self) -> Outcome:
        """Play every act."""
        self._make_store()
        with follower(self.lake) as billing, self._spark_beside(self._first_acts):
            self._on_spark("the stream reads what is in the archive", Stream.catch_up)
            self._stream_along()
            self._move("flush", "checkpoint", "archive")
            self._generate("the generator goes on")
            self._move("flush", "checkpoint")
            self._generate("the generator goes on, to the end")
            self._audit()
            self._finish(billing)
        return self.outcome

    def _make_store(self) -> None:
        self.lake.mkdir(parents=True)
        (self.lake / "latewood.toml").write_text(f'[archive]\nurl = "{(self.home / "archive").as_uri()}"\n')
        with Store.open(self.lake) as store:
            segment_bytes, chunk_bytes = self.size.segment_bytes, self.size.chunk_bytes
            store.create_database(DATABASE, SHARDS, segment_bytes_max=segment_bytes, chunk_bytes=chunk_bytes)
            store.create_database("totals")

    @contextmanager
    def _spark_beside(self, act: Callable[[], None]) -> Iterator[None]:
        """Start Spark, which takes a while, and play an act meanwhile; Spark ends with the block."""
        with ThreadPoolExecutor(1, "act") as stage:
            played = stage.submit(act)
            spark = self._start_spark()
            try:
                played.result()
                self._stream = Stream(spark, self.lake, self.home, self.size.batch) if spark else None
                yield
            finally:
                if spark:
                    with suppress(SparkFailed), in_one_line("Spark does not end"):
                        spark.stop()

    def _start_spark(self) -> "SparkSession | None":
        try:
            return start_session(self.home)
        except SparkFailed as error:
            self.outcome.missing = str(error)
            return None

    def _on_spark(self, what: str, act: Callable[[Stream], T]) -> T | None:
        """Do something on Spark; if that fails the demo goes on without it, and says so at its end."""
        if self._stream is None:
            return None
        self.progress.show(what)
        try:
            with in_one_line(f"Spark failed while {what}"):
                return act(self._stream)
        except SparkFailed as error:
            self.outcome.missing, self._stream = str(error), None
            return None

    def _first_acts(self) -> None:
        """The generator is killed with -9 in mid-flight, and goes on; all that it wrote goes to the archive alone."""
        self._generate("the generator will be killed", kill=True)
        self._generate("the generator was killed, and goes on")
        self._move("flush", "checkpoint", "archive", "evict")
        self.progress.show("Spark starts")

    def _generate(self, what: str, *, kill: bool = False) -> None:
        self.progress.show(f"{what}: {sum(self.outcome.acknowledged.values()):,} events are safe so far")
        run = len(self.outcome.runs)
        self.outcome.runs[run] = run_generator(self.lake, run, self.size.events, kill=kill)

    def _move(self, *kinds: str) -> None:
        """Move what is sealed on: to chunks, to the archive, off this disk."""
        for kind in kinds:
            self.progress.show(f"jobs: {kind}")
            with Store.open(self.lake) as store:
                store.run_job(kind, DATABASE, **{"flush": {"seal": True}, "evict": {"now": True}}.get(kind, {}))

    def _stream_along(self) -> None:
        """Have the stream read while the generator writes, forget what it did, and go on."""
        self._on_spark("the stream starts", Stream.begin)
        self._generate("the generator writes, and the stream reads along")
        self._on_spark("the stream reads what was written", Stream.end)
        self._on_spark("the stream forgets its last batch", Stream.forget)
        self._on_spark("the stream does its last batch again", Stream.catch_up)

    def _audit(self) -> None:
        """Have a second reader, which is behind."""
        with Store.open(self.lake) as store:
            events = store.database(DATABASE)
            places = {shard.shard: int(shard.next_sequence * AUDITED) for shard in events.stats()}
            with events.reader("audit", places) as reader:
                reader.commit()

    def _finish(self, billing: Follower) -> None:
        self.progress.show("billing reads to the end")
        outcome = self.outcome
        outcome.read, outcome.is_read_in_order = billing.end()
        self._on_spark("the stream reads to the end", Stream.catch_up)
        counted = self._on_spark("SQL counts everything", lambda stream: stream.tally(outcome.acknowledged))
        outcome.totals = self._on_spark("SQL reads what the stream wrote", Stream.totals)
        outcome.segments = self._on_spark("SQL reads what the log says of itself", Stream.segments) or []
        with Store.open(self.lake, mode="r") as store:
            events = store.database(DATABASE)
            outcome.tally = counted or tally((record.payload for record in events.scan()), outcome.acknowledged)
            outcome.tiers = tier_figures(live_chunks(store, events.db_id))


def aligned(rows: Sequence[Sequence[object]]) -> list[str]:
    """Return rows as lines, numbers to the right."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [any(isinstance(cell, int) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    ]
