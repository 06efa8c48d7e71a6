"""Logs under writers and readers whose directories are moved, deleted, replaced and restored.

Every payload says which directory it was appended to, and as which record.  A writer may be told at any time that its
directory is another, and only then; whatever it is told to be durable must have been appended while the path led to the
directory that the writer opened, and be there in the end.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import latewood
from latewood import LatewoodError, ManifestCorrupted, Queue
from latewood.errors import DirectoryReplaced, Locked, NotFoundError, Poisoned
from latewood.format.segment import HEADER_SIZE
from tests.identity.places import Directory, Place, Violation, require

STEPS: Final = 80
_OPTIONS: Final[dict[str, Any]] = {"segment_bytes_max": 2048, "background": False}
_LIVE_MAX: Final = 3


class Content:
    """What must be in a log: everything that was appended, and how much of it was acknowledged as durable."""

    def __init__(self, records: list[bytes] | None = None, safe: int = 0) -> None:
        self.records, self.safe = records or [], safe

    def copied(self) -> "Content":
        return Content([*self.records], self.safe)


LogDirectory = Directory[Content]


class Tally(NamedTuple):
    """What a round has come to."""

    acknowledged: int
    told: int
    events: int


class Writer:
    """A program that has a log open to append."""

    def __init__(self, place: Place[Content], directory: LogDirectory, log: Queue, chance: random.Random) -> None:
        self.place, self.directory, self.log, self._chance = place, directory, log, chance
        self.has_lock = True
        """Whether nobody has removed its lock file."""
        self.acknowledged = 0

    @property
    def is_named(self) -> bool:
        return self.place.named is self.directory

    def step(self) -> bool:
        """Do something; return whether the writer lives on."""
        act = self._chance.choice([self._append, self._append, self._batch, self._flush, self._roll, self._clean])
        try:
            act()
        except DirectoryReplaced as error:
            require(not (self.is_named and self.has_lock), "told so, and the directory is where it was", error)
            self._end()
            return False
        return True

    def close(self) -> None:
        """End as a program does that is done."""
        unsafe = len(self.directory.model.records) > self.directory.model.safe
        try:
            self.log.close()
        except DirectoryReplaced as error:
            require(not (self.is_named and self.has_lock), "told so, and the directory is where it was", error)
        else:
            if unsafe:
                self._acknowledge()

    def _end(self) -> None:
        payload = b"after it was told"
        self.directory.model.records.append(payload)
        for again in (lambda: self.log.append(payload, durable=True), self.log.roll):
            try:
                again()
            except DirectoryReplaced:
                continue
            raise Violation("it goes on after it was told to stop", self.directory)
        with suppress(LatewoodError):
            self.log.close()

    def _next(self, count: int) -> list[bytes]:
        """Note records that are about to be appended."""
        records = self.directory.model.records
        made = [b"%d:%d " % (self.directory.number, len(records) + at) for at in range(count)]
        return [payload * self._chance.randrange(1, 30) for payload in made]

    def _append(self) -> None:
        (payload,) = self._next(1)
        durable = self._chance.random() < 0.7
        try:
            self.log.append(payload, durable=durable)
        except DirectoryReplaced:
            self._look(payload)
            raise
        self.directory.model.records.append(payload)
        if durable:
            self._acknowledge()

    def _batch(self) -> None:
        payloads = self._next(self._chance.randrange(1, 8))
        durable = self._chance.random() < 0.5
        try:
            self.log.append_many(payloads, durable=durable)
        except DirectoryReplaced:
            self._look(*payloads)
            raise
        self.directory.model.records += payloads
        if durable:
            self._acknowledge()

    def _look(self, *payloads: bytes) -> None:
        """Records may have been written before their writer was told: they may be there, and need not."""
        self.directory.model.records += payloads

    def _flush(self) -> None:
        unsafe = len(self.directory.model.records) > self.directory.model.safe
        self.log.flush()
        if unsafe:
            self._acknowledge()

    def _roll(self) -> None:
        if self.log.roll() is not None:
            self._acknowledge()

    def _clean(self) -> None:
        if self.log.cleanup():
            require(self.is_named, "segments were deleted for a path that leads elsewhere")

    def _acknowledge(self) -> None:
        require(self.is_named, "acknowledged as durable, and the path leads elsewhere", self.directory)
        model = self.directory.model
        self.acknowledged += len(model.records) - model.safe
        model.safe = len(model.records)


class Reader:
    """A program that reads a log beside its writer."""

    def __init__(self, place: Place[Content], directory: LogDirectory, log: Queue, name: str) -> None:
        self.place, self.directory, self.log = place, directory, log
        self._reader = log.reader(name)

    def step(self) -> bool:
        try:
            for record in self._reader.poll(10):
                self._check(record.sequence, record.payload)
            for record in self.log.scan():
                self._check(record.sequence, record.payload)
            self._reader.commit()
        except DirectoryReplaced as error:
            require(self.place.named is not self.directory, "told so, and the directory is where it was", error)
            self.log.close()
            return False
        require(self.place.named is self.directory, "a position was stored for a path that leads elsewhere")
        return True

    def close(self) -> None:
        self.log.close()

    def _check(self, sequence: int, payload: bytes) -> None:
        records = self.directory.model.records
        require(sequence < len(records), "a record of another log", payload)
        require(records[sequence] == payload, "a record of another log", payload, records[sequence])


class World:
    """Two tenants, each with a log of the same name in a directory of its own, and their programs."""

    def __init__(self, home: Path, chance: random.Random) -> None:
        self.chance, self.home = chance, home
        self.places: list[Place[Content]] = []
        for tenant in ("a", "b"):
            (home / tenant).mkdir()
            self.places.append(Place(home / tenant, "events", chance, Content, Content.copied))
        self.writers: list[Writer] = []
        self.readers: list[Reader] = []
        self.acknowledged = self.told = self.happened = 0

    def step(self) -> None:
        act = self.chance.choices(
            [self.open_writer, self.open_reader, self.write, self.read, self.event, self.wander, self.unlock, self.end],
            [6, 3, 50, 10, 5, 3, 1, 1],
        )[0]
        act()

    def open_writer(self) -> None:
        place = self.chance.choice(self.places)
        if len(self.writers) >= _LIVE_MAX:
            return
        directory = place.named or place.make()
        holders = [one for one in self.writers if one.directory is directory]
        with self._at(place):
            path = place.path.name if self.chance.random() < 0.7 else place.path
            try:
                log = latewood.open(path, **_OPTIONS)
            except Locked:
                require(holders, "locked by nobody")
                return
        require(not holders, "two writers have one log", directory)
        writer = Writer(place, directory, log, self.chance)
        self.writers.append(writer)
        end = log.next_sequence
        model = directory.model
        require(model.safe <= end <= len(model.records), "the log ends elsewhere", end, model.safe)
        del model.records[end:]
        model.safe = end  # Opening makes durable what it finds.

    def open_reader(self) -> None:
        place = self.chance.choice(self.places)
        if place.named is None or len(self.readers) >= _LIVE_MAX:
            return
        name = f"reader-{self.chance.randrange(2)}"
        with self._at(place):
            try:
                log = latewood.open(place.path.name, mode="r")
            except NotFoundError:
                return
        try:
            self.readers.append(Reader(place, place.named, log, name))
        except Locked:
            log.close()
        except LatewoodError:
            log.close()
            raise

    def write(self) -> None:
        if self.writers:
            writer = self.chance.choice(self.writers)
            before = writer.acknowledged
            if not writer.step():
                self.writers.remove(writer)
                self.told += 1
            self.acknowledged += writer.acknowledged - before

    def read(self) -> None:
        if self.readers:
            reader = self.chance.choice(self.readers)
            if not reader.step():
                self.readers.remove(reader)
                self.told += 1

    def event(self) -> None:
        place = self.chance.choice(self.places)
        self.chance.choice(place.events())()
        self.happened += 1

    def wander(self) -> None:
        """Change the current directory."""
        os.chdir(self.chance.choice([self.home, Path("/"), *(place.home for place in self.places)]))

    def unlock(self) -> None:
        """Remove the lock file of a log, as if its writer were dead."""
        place = self.chance.choice(self.places)
        if place.named is not None:
            (place.path / "writer.lock").unlink(missing_ok=True)
            for writer in self.writers:
                writer.has_lock = writer.has_lock and writer.directory is not place.named

    def end(self) -> None:
        if self.writers:
            self.writers.pop(self.chance.randrange(len(self.writers))).close()
        if self.readers:
            self.readers.pop(self.chance.randrange(len(self.readers))).close()

    def settle(self) -> Tally:
        """End every program, and look into every directory that is left."""
        for reader in self.readers:
            reader.close()
        for writer in self.writers:
            writer.close()
        for place in self.places:
            for directory in place.own:
                check(directory)
        return Tally(self.acknowledged, self.told, self.happened)

    @contextmanager
    def _at(self, place: Place[Content]) -> Iterator[None]:
        """Be where the place is while a path is named."""
        before = Path.cwd()
        os.chdir(place.home)
        try:
            yield
        finally:
            os.chdir(before)


def check(directory: LogDirectory) -> None:
    """Require that a log has what it must have, and nothing else, and can be written."""
    model, path = directory.model, directory.path
    assert path is not None
    if not (path / "manifest.current").exists():
        require(not model.safe, "a log is gone", directory)
        return
    with latewood.open(path, **_OPTIONS) as log:
        first, end = log.first_sequence, log.next_sequence
        found = [record.payload for record in log.scan()]
        require(model.safe <= end, "records that were acknowledged are lost", directory, end, model.safe)
        require(found == model.records[first:end], "records of another log, or others than were appended", directory)
        log.append(b"goes on", durable=True)


def play(home: Path, chance: random.Random) -> Tally:
    """Play one round."""
    world = World(home, chance)
    for _ in range(STEPS):
        world.step()
    return world.settle()


# -- an older copy of some files ----------------------------------------------------------------------


def play_partly_restored(home: Path, chance: random.Random) -> Tally:
    """Restore an older manifest, `index.meta` and open segment beside newer segments; the newer ones must stay."""
    path = home / "events"
    log = latewood.open(path, **_OPTIONS)
    records = [b"%d" % number * chance.randrange(1, 40) for number in range(chance.randrange(5, 60))]
    moment = chance.randrange(len(records))
    saved: dict[Path, bytes] = {}
    for number, payload in enumerate(records):
        if number == moment:
            log.flush()
            active = path / log._writer.manifest.active.path
            names = [*path.glob("manifest.*"), path / "index.meta", path / "identity", active]
            saved = {name: name.read_bytes() for name in names}
        log.append(payload)
        if chance.random() < 0.2:
            log.roll()
    log.close()
    others = {one: one.read_bytes() for one in path.glob("segments/*/*/*/*.q") if one not in saved}
    newer = {one: data for one, data in others.items() if data[HEADER_SIZE:].strip(b"\0")}
    for name, data in saved.items():
        name.write_bytes(data)
    if chance.random() < 0.5:
        (path / "segments" / "current.sealed").unlink(missing_ok=True)
    has_newer = any(int(one.stem) > int(active.stem) for one in newer)
    try:
        log = latewood.open(path, **_OPTIONS)
    except ManifestCorrupted:
        require(has_newer, "refused without a reason")
    else:
        for _ in range(chance.randrange(5)):
            with suppress(LatewoodError):
                log.append(bytes(600), durable=True)
        with suppress(LatewoodError):
            log.roll()
        with suppress(LatewoodError):
            log.close()
        require(not has_newer, "opened beside newer segments")
    for one, data in newer.items():
        require(one.read_bytes() == data, "a newer segment was changed", one)
    return Tally(len(records), 1, 1)


def play_name_taken(home: Path, chance: random.Random) -> Tally:
    """Put a segment where the next roll would make one: it must stay, and the roll must fail."""
    path = home / "events"
    log = latewood.open(path, **_OPTIONS)
    count = chance.randrange(1, 30)
    for number in range(count):
        log.append(b"%d" % number, durable=True)
        if chance.random() < 0.1:
            log.roll()
    log.append(b"last", durable=True)
    active = path / log._writer.manifest.active.path
    taken = active.with_name(f"{int(active.stem) + 1:09}.q")
    taken.write_bytes(active.read_bytes())
    before = taken.read_bytes()
    try:
        log.roll()
        raise Violation("a roll took the name of another segment")
    except Poisoned:
        log.close()
    require(taken.read_bytes() == before, "a segment was replaced", taken)
    taken.unlink()
    with latewood.open(path) as again:
        require(again.next_sequence == count + 1, "records were lost")
    return Tally(count, 1, 1)


Play = Callable[[Path, random.Random], Tally]
