"""Threads that work with a program while something happens to its directory."""

import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any, Final

import latewood
from tests.identity.book import Found, Place
from tests.identity.scene import Scene
from tests.identity.subjects import Program, StoreProgram
from tests.patience import wait_until

STEPS_MAX: Final = 400
"""Steps of one thread in a round: enough for any event, and a bound for what is compared."""
_PAUSE_S: Final = 0.001

COMPANIES: Final = ["idle", "writers", "readers", "jobs"]


class Company:
    """Threads that repeat something until they are stopped, or meet an error."""

    def __init__(self, scene: Scene, program: Program, kind: str) -> None:
        self._scene, self._program, self._kind = scene, program, kind
        self.errors: list[BaseException] = []
        """What they met."""
        self.steps = 0
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._opened = ExitStack()

    def start(self) -> None:
        """Start, and return once each has done something."""
        works: list[Callable[[], object]] = []
        if self._kind == "writers":
            works = [self._program.write] * self._scene.chance.randint(1, 2)
        elif self._kind == "readers":
            works = [self._reader(number) for number in range(self._scene.chance.randint(1, 2))]
        elif self._kind == "jobs":
            self._program.start_jobs()
        self._threads = [threading.Thread(target=self._repeat, args=(work,)) for work in works]
        for thread in self._threads:
            thread.start()
        wait_until(lambda: self.errors or self.steps >= len(works))

    def stop(self) -> None:
        """Stop, and wait for all of them."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._threads = []
        self._opened.close()

    def _repeat(self, work: Callable[[], object]) -> None:
        for _ in range(STEPS_MAX):
            if self._over.wait(_PAUSE_S):
                return
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - the top of a thread
                self.errors.append(error)
                return
            self.steps += 1

    def _reader(self, number: int) -> Callable[[], object]:
        """Open the subject once more, to read; return what is repeated."""
        if self._scene.subject.name in ("log", "checkpoint"):
            log = self._opened.enter_context(latewood.open(self._program.path, mode="r"))
            alone = self._opened.enter_context(closing(log.reader(f"reader-{number}")))
            return lambda: self._turn(alone)
        if self._scene.subject.name == "node":
            return self._program.use
        assert isinstance(self._program, StoreProgram)  # In one process a store is open once.
        reader = self._opened.enter_context(closing(self._program.db.reader(f"reader-{number}")))
        return lambda: self._turn(reader)

    def _turn(self, reader: Any) -> None:
        records = reader.poll(20)
        self._scene.book.check_some(
            Found(Place(getattr(record, "shard", 0), record.sequence), record.payload) for record in records
        )
        reader.commit()
