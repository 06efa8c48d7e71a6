"""The golden stores: how they were written, and what is to be seen in them.

The committed ones, in `v1/store` and `v2/store`, are never written again.  Each is a folder with the store, `lake`, and
the directory that is its archive.  `closed` was closed in good order; `killed` is the same store a moment earlier, as a
killed writer leaves it: its last records are in logs whose manifests do not know them.

Names of chunks are drawn at random, so the same program does not write the same bytes twice.

    python -m tests.golden.store freeze DIRECTORY   the stores and expected.json, in a folder that is not there yet
    python -m tests.golden.store show COPY          what is to be seen in a copy of the folder, read and then written
"""

import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from latewood.archive.directory import DirectoryTier
from latewood.catalog import CatalogOptions
from latewood.catalog.tables import JobKind
from latewood.fs import PosixFS
from latewood.runtime import Database, Store
from latewood.runtime.record import DatabaseRecord
from latewood.runtime.store import Mode
from latewood.testing import FakeClock
from tests.golden.make import EXPECTED, SHOWN_AT_NS, Shown, is_of_a_format

STORES: Final = ("closed", "killed")
MODES: Final[tuple[Mode, ...]] = ("r", "w")
DATABASES: Final = ("clicks", "plain")
COHORT: Final = 3
"""Of the second shard's segments, since version 2."""
_POSITION: Final = ("name", "shard", "sequence", "committed_at_ns")
_LOCKS: Final = ("catalog.mdb-lock", "catalog.mdb.writer")
CATALOG: Final = CatalogOptions(map_bytes=256 * 1024, map_headroom_bytes=64 * 1024, commit_budget_us=0)


def opened(home: Path, mode: Mode, clock: FakeClock) -> Store:
    """Open a store with an archive whose name is the same wherever the folder is."""
    tier = DirectoryTier(PosixFS(), home / "archive")
    tier.name = "file:///archive"
    return Store.open(home / "lake", mode=mode, tier=tier, clock=clock, catalog_options=CATALOG)


# -- writing ----------------------------------------------------------------------------------------------


class Scribe:
    """Writes one store, and keeps account of every record by itself: the store is not asked what it holds."""

    def __init__(self, home: Path) -> None:
        self._home, self._clock = home, FakeClock()
        self.records: dict[str, list[Shown]] = {name: [] for name in DATABASES}

    def write(self, killed: Path) -> None:
        """Write databases, chunks, readers and jobs, and a copy of the folder in `killed` while the store is open."""
        with opened(self._home, "w", self._clock) as store:
            (self._home / "lake" / "latewood.toml").write_text('[archive]\nurl = "../archive"\n')
            options: dict[str, Any] = {"segment_bytes_max": 2048, "grace_ms": 0}
            clicks = store.create_database("clicks", shards=2, **options)
            plain = store.create_database("plain", keyed=False, **options)
            clicks.shards[1].log.set_ext_id(COHORT)
            self._fill(clicks, "archived", 40)
            self._fill(plain, "archived", 20)
            for name in DATABASES:
                self._run(store, name, flush={"seal": True}, checkpoint={}, archive={}, evict={"now": True})
            self._fill(clicks, "in a chunk", 30)
            self._fill(plain, "in a chunk and an object", 15)
            self._run(store, "clicks", flush={"seal": True}, checkpoint={})
            self._run(store, "plain", flush={"seal": True}, checkpoint={}, archive={})
            self._fill(clicks, "in a log", 90)
            self._fill(plain, "in a log", 45)
            self._place_readers(clicks, plain)
            store.jobs.cancel(store.enqueue(JobKind.VERIFY, "plain"))
            store.enqueue(JobKind.VERIFY, "clicks")
            for database in (clicks, plain):
                database.flush()
                self._fill(database, "after the last flush", 8)
            _copy(self._home, killed)

    def _fill(self, database: Database, text: str, count: int) -> None:
        for number in range(count):
            self._clock.advance(ms=1)
            key = b"user-%d" % (number % 5) if database.keyed and number % 4 else None
            payload, ext_id = f"{text} {number}".encode(), number * 3
            shard, sequence = database.append(payload, key, ext_id=ext_id)
            now_ns = self._clock.now_ns()
            record = DatabaseRecord(shard, sequence, now_ns, ext_id, key, payload)
            self.records[database.name].append(shown_record(record))

    def _run(self, store: Store, database: str, **kinds: dict[str, Any]) -> None:
        for kind, payload in kinds.items():
            self._clock.advance(seconds=1)
            store.run_job(kind, database, **payload)

    def _place_readers(self, clicks: Database, plain: Database) -> None:
        with clicks.reader("billing") as reader:  # In the archive.
            reader.poll(10)
            self._clock.advance(seconds=1)
            reader.commit()
        clicks.reader("fresh", start="latest").close()
        with plain.reader("billing", start={0: 25}) as reader:  # In a local chunk.
            reader.poll(5)
            reader.commit()


def _copy(home: Path, target: Path) -> None:
    for path in home.rglob("*"):
        if path.is_file() and is_of_a_format(path) and path.name not in _LOCKS:
            (target / path.relative_to(home)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / path.relative_to(home))


# -- reading ----------------------------------------------------------------------------------------------


def show(home: Path, mode: Mode) -> Shown:
    """Return what is to be seen in a store."""
    with opened(home, mode, FakeClock(SHOWN_AT_NS)) as store:
        return {
            "databases": {record.name: _database(store, record.name) for _, record in store.databases()},
            "jobs": [
                {"job_id": job.job_id, "kind": job.kind, "db_id": job.db_id, "state": type(job.state).__name__}
                for job in store.jobs.jobs()
            ],
        }


def _database(store: Store, name: str) -> Shown:
    database = store.database(name)
    chunks = store.catalog.read(lambda view: [row for _, row in view.chunks(database.db_id)])
    return {
        "db_id": database.db_id,
        "status": type(database.record.status).__name__,
        "keyed": database.keyed,
        "records": [shown_record(record) for record in database.scan()],
        "shards": [one._asdict() for one in database.stats()],
        "readers": [dict(zip(_POSITION, one, strict=False)) for one in database.readers().positions()],
        "resume_at": {
            reader: {str(shard): at for shard, at in _resumed(database, reader).items()}
            for reader in sorted({one.name for one in database.readers().positions()})
        },
        "chunks": [
            {
                "file_name": row.file_name,
                "shard": row.shard,
                "sequences": [row.sequence_min, row.sequence_max],
                "rows": row.row_count,
                "residency": type(row.residency).__name__,
                "is_live": row.is_live,
            }
            for row in chunks
        ],
    }


def _resumed(database: Database, name: str) -> dict[int, int]:
    with database.reader(name) as reader:
        return reader.positions


def shown_record(record: DatabaseRecord) -> Shown:
    """Return a record as it is in expected.json."""
    key = None if record.key is None else record.key.decode()
    return record._asdict() | {"key": key, "payload": record.payload.decode()}


def show_all(copy: Path) -> dict[str, dict[str, Shown]]:
    """Return what is to be seen in both stores of a copy: first by reading, then by opening to write."""
    return {store: {mode: show(copy / store, mode) for mode in MODES} for store in STORES}


# -- freezing ---------------------------------------------------------------------------------------------


def freeze(directory: Path) -> None:
    """Write the stores of a new version, and what is to be seen in them."""
    directory.mkdir(parents=True)  # It is an error if it is there: what is frozen stays.
    with TemporaryDirectory() as home:
        scribe = Scribe(Path(home))
        scribe.write(directory / "killed")
        _copy(Path(home), directory / "closed")
    with TemporaryDirectory() as copy:
        shutil.copytree(directory, copy, dirs_exist_ok=True)
        shown = show_all(Path(copy))
    same = shown["closed"]["r"]
    assert all(shown[store][mode] == same for store in STORES for mode in MODES)
    for name, records in scribe.records.items():
        assert same["databases"][name]["records"] == sorted(records, key=lambda one: (one["shard"], one["sequence"]))
    (directory / EXPECTED).write_text(json.dumps(same, indent=1) + "\n")


def main(arguments: list[str]) -> None:
    match arguments:
        case ["freeze", directory]:
            freeze(Path(directory))
        case ["show", copy]:
            print(json.dumps(show_all(Path(copy))))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
