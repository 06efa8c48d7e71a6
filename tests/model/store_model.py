"""A pond to be broken: what a store must hold through crashes, whatever jobs were run, begun, or cut."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from latewood.runtime.record import DatabaseRecord
from tests.jobs.kit import Killed
from tests.runtime.pond import KINDS, LAKE, REMOTE, Kept, Pond

if TYPE_CHECKING:
    from latewood.runtime.reader import DatabaseReader

READER: Final = "billing"


class StoreModel:
    """A store, and beside it what it must hold.  A crash is a copy of the disk, taken while the process lives."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self._directory, self._lives = directory, 0
        self.pond = Pond(directory / "0")
        self.pond.create(**options)
        self.shards: Final = len(self.pond.model)
        self.seen = [0] * self.shards
        """How far the reader has come."""
        self.committed = [0] * self.shards
        self.generations: dict[int, list[int]] = {}
        """Where each shard ended at a generation."""
        self.reader: DatabaseReader = self.pond.db.reader(READER)

    def close(self) -> None:
        self.pond.store.close()

    # -- what happens -----------------------------------------------------------------------------------------

    def job(self, kind: str, **payload: Any) -> None:
        """Run a job to its end."""
        self.pond.run(kind, **payload)
        if kind in {"retain", "checkpoint"}:  # What retention let go may still be in a log until a checkpoint.
            self.retained()

    def cut_job(self, kind: str, cut_at: int) -> None:
        """Begin a job, and let the process die before one of its steps; if it has as many."""
        left = [cut_at]

        def steps(name: str) -> None:
            left[0] -= 1
            if left[0] < 0:
                self._copy()
                raise Killed(name)

        self.pond.steps = steps
        self.pond.enqueue(kind)
        try:
            self.pond.settle()
        except Killed:
            self._be_reborn()
        self.pond.steps = lambda _: None
        self.retained()

    def crash(self) -> None:
        """Let the process die between two calls."""
        self._copy()
        self._be_reborn()

    def finish(self) -> None:
        """Run what is left of jobs that broke off."""
        self.pond.settle()
        self.retained()

    def poll(self, count: int) -> None:
        """Let the reader go on."""
        records = self.reader.poll(count)
        assert len(records) <= count
        assert records or self.seen == self.ends(), "there is more to read"
        self._check_polled(records)

    def commit(self) -> None:
        self.reader.commit()
        self.committed = list(self.seen)

    def note_generation(self) -> None:
        """Remember how far the chunks of each shard reach now."""
        self.generations[self.pond.store.generation] = self._chunk_ends()

    # -- what must hold ---------------------------------------------------------------------------------------

    def check(self) -> None:
        self.pond.check()

    def check_generations(self) -> None:
        for generation, ends in self.generations.items():
            for shard, end in enumerate(ends):
                found = [record.sequence for record in self.pond.db.scan(shard=shard, as_of=generation)]
                floor = self.pond.floors.get(shard, 0)
                assert found == list(range(floor, max(floor, end)))

    def check_stretch(self, shard: int, start: int, length: int) -> None:
        start = max(start, self.pond.floors.get(shard, 0))
        found = [(one.sequence, Kept(*one[2:])) for one in self.pond.db.scan(start, start + length, shard=shard)]
        kept = self.pond.model[shard]
        assert found == [(at, kept[at]) for at in range(start, min(len(kept), start + length))]

    def check_clean(self) -> None:
        """After every kind of job has run to its end, nothing is left that no row claims."""
        self.finish()
        for kind in KINDS:
            self.job(kind)
        self.pond.check_no_orphans()
        self.check()

    def ends(self) -> list[int]:
        return [len(kept) for kept in self.pond.model.values()]

    def retained(self) -> None:
        """Retention may only have taken what the reader has committed."""
        before = dict(self.pond.floors)
        self.pond.learn_floors()
        for shard, floor in self.pond.floors.items():
            assert floor == before.get(shard, 0) or floor <= self.committed[shard], "a reader still wanted it"

    # -- inside -----------------------------------------------------------------------------------------------

    def _check_polled(self, records: Sequence[DatabaseRecord]) -> None:
        for record in records:
            assert record.sequence == self.seen[record.shard]
            assert Kept(*record[2:]) == self.pond.model[record.shard][record.sequence]
            self.seen[record.shard] += 1

    def _chunk_ends(self) -> list[int]:
        ends = [self.pond.floors.get(shard, 0) for shard in range(self.shards)]
        for record in self.pond.live():
            ends[record.shard] = max(ends[record.shard], record.sequence_max + 1)
        return ends

    def _copy(self) -> None:
        target = self._directory / str(self._lives + 1)
        for part in (LAKE, REMOTE):
            if (source := self.pond.home / part).exists():
                shutil.copytree(source, target / part, ignore=shutil.ignore_patterns("*.mdb-lock"))

    def _be_reborn(self) -> None:
        old, self._lives = self.pond, self._lives + 1
        old.store.close()
        shutil.rmtree(old.home)
        self.pond = Pond(self._directory / str(self._lives), clock=old.clock, model=old.model)
        self.pond.floors = old.floors
        self.seen = list(self.committed)
        self.reader = self.pond.db.reader(READER)
