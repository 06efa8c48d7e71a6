"""A store under writers, readers and jobs; its directory, those of its shards and its archive are replaced meanwhile.

What was acknowledged as durable must have been appended while the path led to the directory that the store opened, and
must be in that directory in the end, together with its archive.  A store is opened only while its own archive is in its
place: which archive a store has is what its settings say.
"""

import random
import shutil
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final
from unittest import mock

from latewood import LatewoodError
from latewood.archive.directory import DirectoryTier
from latewood.catalog import opening
from latewood.catalog.env import LMDBEnv
from latewood.errors import ClosedError, DirectoryReplaced, JobFailed, Locked
from latewood.fs import PosixFS
from latewood.runtime import Database, Store
from latewood.runtime.options import DatabaseOptions
from tests.identity.logs import Tally
from tests.identity.places import Directory, Place, require

STEPS: Final = 40
SHARDS: Final = 2
NAME: Final = "clicks"
JOBS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("flush", {"seal": True}),
    ("checkpoint", {}),
    ("archive", {}),
    ("evict", {"now": True}),
    ("compact", {"eager": True}),
]


class Content:
    """What must be in a database: the records of each shard, and how many of them were acknowledged as durable."""

    def __init__(self, records: list[list[bytes]] | None = None, safe: list[int] | None = None) -> None:
        self.records = records or [[] for _ in range(SHARDS)]
        self.safe = safe or [0] * SHARDS

    def copied(self) -> "Content":
        return Content([[*records] for records in self.records], [*self.safe])


class Session:
    """A program that has the store open."""

    def __init__(self, place: Place[Content], directory: Directory[Content], store: Store, db: Database) -> None:
        self.place, self.directory, self.store, self.db = place, directory, store, db
        self.has_lock = True
        self.lost_shards: set[int] = set()
        """Shards whose directory was replaced."""

    @property
    def is_named(self) -> bool:
        return self.place.named is self.directory

    def excuse(self, shard: int | None = None) -> bool:
        """Say whether an error may say that a directory is another."""
        return (
            not self.is_named
            or not self.has_lock
            or (bool(self.lost_shards) if shard is None else shard in self.lost_shards)
        )


class World:
    """One store, its archive, and whoever is at work."""

    def __init__(self, home: Path, chance: random.Random) -> None:
        self.chance = chance
        self.place = Place(home, "lake", chance, Content, Content.copied)
        self.archive: Place[None] = Place(home, "archive", chance, lambda: None, lambda _: None)
        self.first_archive = self.archive.make()
        self.session: Session | None = None
        self.acknowledged = self.told = self.happened = 0

    def step(self) -> None:
        if self.session is None:
            self.open()
            return
        act = self.chance.choices(
            [self.append, self.flush, self.job, self.read, self.event, self.archive_event, self.shard_event, self.end],
            [24, 6, 10, 6, 2, 3, 1, 1],
        )[0]
        act(self.session)

    def open(self) -> None:
        """Open the store, with its own archive in its place."""
        self.restore_archive()
        directory = self.place.named or self.place.make()
        store = Store.open(self.place.path, tier=self.tier())
        try:
            if not directory.model.records[0] and not store.databases():
                store.create_database(NAME, SHARDS, DatabaseOptions(segment_bytes_max=64 * 1024, keyed=False))
            db = store.database(NAME)
            self.session = Session(self.place, directory, store, db)
            for shard in db.shards:
                end, records = shard.end(), directory.model.records[shard.number]
                require(directory.model.safe[shard.number] <= end <= len(records), "a shard ends elsewhere", end)
                del records[end:]
                directory.model.safe[shard.number] = end
        except BaseException:
            store.close()
            raise

    def tier(self) -> DirectoryTier:
        tier = DirectoryTier(PosixFS(), self.archive.path)
        tier.name = "file:///archive"
        list(tier.list())  # From now on it is held open: else a job would make another one where it was.
        return tier

    def restore_archive(self) -> None:
        if self.archive.named is not self.first_archive:
            if self.archive.named is not None:
                self.archive.move()
            self.archive._put(self.first_archive)

    # -- what is done -------------------------------------------------------------------------------------

    def append(self, session: Session) -> None:
        durable = self.chance.random() < 0.7
        number = self.chance.randrange(SHARDS)
        log, records = session.db.shards[number].log, session.directory.model.records[number]
        payload = b"%d:%d:%d" % (session.directory.number, number, len(records))
        records.append(payload)
        try:
            log.append(payload, durable=durable)
        except DirectoryReplaced as error:
            self._told(session, error, number)
            return
        if durable:
            self._acknowledge(session, number)

    def flush(self, session: Session) -> None:
        for shard in session.db.shards:
            try:
                is_safe = session.directory.model.safe[shard.number] == len(
                    session.directory.model.records[shard.number]
                )
                shard.log.flush()
            except DirectoryReplaced as error:
                self._told(session, error, shard.number)
                return
            if not is_safe:
                self._acknowledge(session, shard.number)

    def job(self, session: Session) -> None:
        kind, payload = self.chance.choice(JOBS)
        try:
            session.store.run_job(kind, NAME, **payload)
        except JobFailed as error:
            is_excused = session.excuse() or self.archive.named is not self.first_archive
            require(is_excused, "a job failed", kind, error)
        except DirectoryReplaced as error:
            self._told(session, error)
        else:
            require(session.is_named, "a job succeeded in a directory that the path does not lead to", kind)

    def read(self, session: Session) -> None:
        try:
            found = [record.payload for record in session.db.scan(shard=0)]
            with session.db.reader("billing", "earliest") as reader:
                reader.poll()
                reader.commit()
        except DirectoryReplaced as error:
            if self.archive.named is self.first_archive:
                self._told(session, error)
            return
        records = session.directory.model.records[0]
        require(found == records[len(records) - len(found) :][: len(found)], "records of another store")
        require(session.is_named, "a position was stored in a directory that the path does not lead to")

    def event(self, _: Session) -> None:
        self.chance.choice(self.place.events())()
        if self.place.named is not None and self.chance.random() < 0.1:
            (self.place.path / "catalog.mdb.writer").unlink(missing_ok=True)
            if self.session and self.session.directory is self.place.named:
                self.session.has_lock = False
                with suppress(Locked):
                    Store.open(self.place.path, tier=self.tier()).close()
                    require(False, "two programs write one store")  # noqa: FBT003 - the reason is what counts
        self.happened += 1

    def archive_event(self, _: Session) -> None:
        events = [self.archive.put_back] if self.archive.named is None else [self.archive.move, self.archive.swap]
        self.chance.choice(events)()
        self.happened += 1

    def shard_event(self, session: Session) -> None:
        """Replace one shard by a copy of itself: what is appended to either is not in the other."""
        if not session.is_named:
            return
        number = self.chance.randrange(SHARDS)
        path = session.db.shards[number].log.path
        copy = self.place.home / "shard"
        shutil.copytree(path, copy)
        if self.chance.random() < 0.5:
            shutil.rmtree(path)
        else:
            path.rename(self.place.home / f"shard-{self.happened}-{number}")
        shutil.copytree(copy, path)
        shutil.rmtree(copy)
        session.lost_shards.add(number)
        self.happened += 1

    def end(self, session: Session) -> None:
        self.session = None
        try:
            session.store.close()
        except DirectoryReplaced as error:
            require(session.excuse(), "told so, and the directory is where it was", error)
            with suppress(LatewoodError):
                session.store.close()

    def _told(self, session: Session, error: DirectoryReplaced, shard: int | None = None) -> None:
        require(session.excuse(shard), "told so, and the directory is where it was", error)
        self.told += 1
        self.end(session)

    def _acknowledge(self, session: Session, number: int) -> None:
        require(session.is_named, "acknowledged as durable, and the path leads elsewhere", session.directory)
        require(number not in session.lost_shards, "acknowledged as durable, and the shard is another")
        model = session.directory.model
        self.acknowledged += len(model.records[number]) - model.safe[number]
        model.safe[number] = len(model.records[number])

    # -- the end ------------------------------------------------------------------------------------------

    def settle(self) -> Tally:
        """End everything, and look into every directory that is left, with the archive in its place."""
        if self.session is not None:
            self.end(self.session)
        self.restore_archive()
        for directory in self.place.own:
            self._check(directory)
        return Tally(self.acknowledged, self.told, self.happened)

    def _check(self, directory: Directory[Content]) -> None:
        assert directory.path is not None
        if not (directory.path / "catalog.mdb").exists():
            require(not any(directory.model.safe), "a store is gone", directory)
            return
        with closing(Store.open(directory.path, tier=self.tier())) as store:
            if not store.databases():
                require(not any(directory.model.safe), "a database is gone", directory)
                return
            db = store.database(NAME)
            for number, records in enumerate(directory.model.records):
                end = db.shards[number].end()
                found = [record.payload for record in db.scan(shard=number)]
                require(directory.model.safe[number] <= end, "records that were acknowledged are lost", directory, end)
                require(found == records[:end], "records of another store, or others than were appended", directory)
            with suppress(ClosedError):
                db.append(b"goes on", durable=True)


def play(home: Path, chance: random.Random) -> Tally:
    """Play one round."""
    world = World(home, chance)
    for _ in range(STEPS):
        world.step()
    return world.settle()


# -- an event while a store is being opened -----------------------------------------------------------


def play_opened_meanwhile(home: Path, chance: random.Random) -> Tally:
    """Replace a store just before, or just after, LMDB opens its file by path."""
    for name in ("lake", "other"):
        with Store.open(home / name) as store:
            store.create_database(NAME).append(name.encode(), durable=True)
    is_before, env = chance.random() < 0.5, LMDBEnv

    def swapping(*arguments: Any, **options: Any) -> Any:
        opened = None if is_before else env(*arguments, **options)
        (home / "lake").rename(home / "away")
        (home / "other").rename(home / "lake")
        return opened or env(*arguments, **options)

    mode: Any = chance.choice(["w", "r"])
    with mock.patch.object(opening, "LMDBEnv", swapping):
        try:
            store = Store.open(home / "lake", mode=mode)
        except DirectoryReplaced:
            told = 1
        else:
            store.close()
            require(False, "a store was opened that is half another one")  # noqa: FBT003 - the reason is what counts
    for name, payload in (("away", b"lake"), ("lake", b"other")):
        with Store.open(home / name) as store:
            found = [record.payload for record in store.database(NAME).scan()]
            require(found == [payload], "records of another store", name, found)
    return Tally(2, told, 1)
