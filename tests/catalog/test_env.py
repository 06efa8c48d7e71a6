"""The environment: how it opens, grows, and who may come in."""

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import lmdb
import pytest

from latewood.catalog import Catalog, CatalogOptions
from latewood.catalog.env import LIB_VERSION
from latewood.catalog.failures import translated
from latewood.catalog.ops import Op, PutDb
from latewood.catalog.preflight import look_at
from latewood.catalog.tables import CHUNK, DB, ChunkKey
from latewood.catalog.tables.db import DbOptions
from latewood.errors import (
    CatalogCorrupted,
    CatalogFull,
    DiskFull,
    Forked,
    LatewoodError,
    Locked,
    NotFoundError,
    Poisoned,
    ReadOnlyError,
    StorageError,
    UnavailableError,
    UnsupportedVersion,
    UsageError,
)
from latewood.fs import PosixFS
from latewood.limits import KiB
from tests.catalog.desk import Desk, chunk, db, put_chunks, put_database, run_python, write
from tests.forking import fork
from tests.patience import wait_until

READ = "import sys; from latewood.catalog import Catalog; c = Catalog.open(sys.argv[1], mode='r'); "


def big(number: int, size: int = 100_000) -> Op:
    options = DbOptions(wal_dir="w" * size, chunk_dir="c")
    return PutDb(number, db(f"d{number}", options=options))


# -- opening ----------------------------------------------------------------------------------------------


def test_a_new_catalog_is_empty_private_and_durable_by_itself(desk: Desk) -> None:
    catalog = desk.open()
    assert catalog.was_clean
    assert sum(catalog.read(lambda view: view.counts()).values()) == 2  # what it notes of itself
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in desk.path.parent.iterdir()}
    assert modes == {"catalog.mdb": 0o600, "catalog.mdb-lock": 0o600, "catalog.mdb.writer": 0o600}
    flags = catalog._env._env.flags()
    assert flags["sync"]
    assert flags["metasync"]
    assert not flags["writemap"]
    assert not flags["map_async"]
    assert catalog._env._env.lib_version()[:2] == (LIB_VERSION, 9)


def test_what_was_committed_is_there_after_reopening(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog)
    generation = catalog.generation()
    catalog.close()
    again = desk.open()
    assert again.read(lambda view: view.db(1)) == db()
    assert again.generation() == generation + 1  # the note of a clean end


def test_ids_are_not_given_out_again_after_a_restart(desk: Desk) -> None:
    catalog = desk.open()
    first = catalog.reserve_job_id()
    catalog.close()
    assert desk.open().reserve_job_id() > first


def test_an_unclean_end_is_seen_by_the_next(desk: Desk) -> None:
    script = "import os, sys; from latewood.catalog import Catalog; Catalog.open(sys.argv[1]); os._exit(0)"
    assert run_python(script, desk.path).returncode == 0
    catalog = desk.open()
    assert not catalog.was_clean
    catalog.close()
    assert desk.open().was_clean


def test_a_second_writer_in_this_process_is_refused_with_our_pid(desk: Desk) -> None:
    desk.open()
    with pytest.raises(Locked) as caught:
        desk.open()
    assert caught.value.pid == os.getpid()
    assert "catalog.mdb is being written by process" in str(caught.value)


def test_reading_beside_a_writer_of_this_process_is_refused(desk: Desk) -> None:
    desk.open()
    with pytest.raises(UsageError, match="open in this process already"):
        desk.open("r")


def test_nothing_to_read_is_not_found_and_not_made(desk: Desk) -> None:
    with pytest.raises(NotFoundError, match="no catalog"):
        desk.open("r")
    assert list(desk.path.parent.iterdir()) == []


def test_a_file_of_lmdb_that_is_no_catalog_is_not_found(desk: Desk) -> None:
    env = lmdb.open(str(desk.path), subdir=False, lib_version=0)
    with env.begin(write=True) as txn:
        txn.put(b"a", b"b")
    env.close()
    with pytest.raises(NotFoundError, match="no catalog"):
        desk.open("r")


def test_who_opens_to_read_changes_nothing(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog)
    catalog.close()
    before = desk.path.read_bytes()
    reader = desk.open("r")
    assert reader.read(lambda view: view.db(1)) == db()
    assert reader.generation() > 0
    for use in (reader.begin_write, reader.sync, reader.reserve_job_id):
        with pytest.raises(ReadOnlyError, match="mode='r'"):
            use()
    reader.close()
    assert desk.path.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "error"),
    [(b"x" * 10, CatalogCorrupted), (b"x" * 10_000, CatalogCorrupted), (b"\0" * 8192, CatalogCorrupted)],
)
def test_a_file_that_is_none_of_ours_is_never_mapped(desk: Desk, content: bytes, error: type[Exception]) -> None:
    desk.path.write_bytes(content)
    for mode in ("w", "r"):
        with pytest.raises(error):
            desk.open(mode)
    assert desk.path.read_bytes() == content


def test_the_other_format_of_lmdb_is_a_version_not_corruption(desk: Desk) -> None:
    env = lmdb.open(str(desk.path), subdir=False, lib_version=1)
    with env.begin(write=True) as txn:
        txn.put(b"a", b"b")
    env.close()
    with pytest.raises((UnsupportedVersion, CatalogCorrupted)):
        desk.open()


def test_a_file_that_was_cut_short_is_corruption_not_a_dead_process(desk: Desk) -> None:
    catalog = desk.open()
    put_chunks(catalog, 2000)
    catalog.close()
    raw = desk.path.read_bytes()
    desk.path.write_bytes(raw[: len(raw) // 2 // 4096 * 4096])
    assert look_at(PosixFS(), desk.path).is_short
    with pytest.raises(CatalogCorrupted, match="shorter than it should be"):
        desk.open()


def test_a_directory_in_the_place_of_the_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        Catalog.open(tmp_path)


def test_a_mode_that_there_is_not_is_refused(desk: Desk) -> None:
    with pytest.raises(UsageError, match="mode must be"):
        desk.open("a")  # type: ignore[arg-type]


@pytest.mark.needs("unprivileged")
def test_a_directory_that_may_not_be_written_is_said_so(desk: Desk) -> None:
    prefix = []
    if os.geteuid() == 0:
        prefix = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    code = f"from latewood.catalog import Catalog; Catalog.open({str(desk.path)!r})"
    desk.path.parent.chmod(0o500)
    try:
        done = subprocess.run([*prefix, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    finally:
        desk.path.parent.chmod(0o700)
    assert "latewood.errors.ReadOnlyError" in done.stderr, done.stderr


def test_after_a_fork_the_child_is_told_to_open_it_again(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog)
    reading, writing = os.pipe()
    child = fork()
    if not child:  # pragma: no cover - another process
        try:
            for use in (catalog.sync, lambda: catalog.read(lambda view: view.db(1)), catalog.generation):
                try:
                    use()
                except Forked:
                    os.write(writing, b"f")
            catalog.close()
            os.write(writing, b"c")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 10) == b"fffc"
    os.close(reading)
    os.close(writing)
    assert catalog.read(lambda view: view.db(1)) == db()
    catalog.sync()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("map_bytes", 0),
        ("map_bytes_max", 1),
        ("map_headroom_bytes", -1),
        ("commit_budget_us", 10**7),
        ("queue_batches_max", 0),
        ("queue_wait_ms", "long"),
        ("changes_max", 0),
    ],
)
def test_an_option_out_of_bounds_is_named(option: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"{option} must be"):
        CatalogOptions(**{option: value})  # type: ignore[arg-type]


# -- growing ----------------------------------------------------------------------------------------------


def test_a_map_that_is_full_grows_and_the_batch_never_knows(desk: Desk) -> None:
    catalog = desk.open(map_bytes=256 * KiB, map_headroom_bytes=0)
    catalog.apply(*[big(number) for number in range(1, 21)])
    assert catalog.info()["map_size"] > 2_000_000
    assert catalog.read(lambda view: view.count(DB)) == 20


def test_a_map_grows_before_it_is_full(desk: Desk) -> None:
    catalog = desk.open(map_bytes=1024 * KiB, map_headroom_bytes=768 * KiB)
    for turn in range(64):
        catalog.apply(*[PutDb(number, db(f"d{number}")) for number in range(1, 200)], big(1000 + turn % 2, 200_000))
    assert catalog.info()["map_size"] > 1024 * KiB


def test_at_the_ceiling_the_batch_that_does_not_fit_fails_alone(desk: Desk) -> None:
    catalog = desk.open(map_bytes=512 * KiB, map_bytes_max=1024 * KiB, map_headroom_bytes=0)
    with pytest.raises(CatalogFull, match="map_bytes_max"):
        catalog.apply(*[big(number) for number in range(1, 21)])
    assert catalog.read(lambda view: view.count(DB)) == 0
    catalog.apply(PutDb(1, db()))
    small, large = catalog.begin_write(), catalog.begin_write()
    small.put_db(2, db("small"))
    large.extend([big(number) for number in range(3, 23)])
    futures = [large.commit_async(), small.commit_async()]
    assert isinstance(futures[0].exception(60), CatalogFull)
    assert futures[1].result(60)


def test_growing_waits_until_the_readers_of_this_process_have_left(desk: Desk) -> None:
    catalog = desk.open(map_bytes=256 * KiB, map_headroom_bytes=0)
    inside, leave, order = threading.Event(), threading.Event(), list[str]()

    def read() -> None:
        def callback(view: object) -> None:  # noqa: ARG001
            inside.set()
            leave.wait(60)
            order.append("left")

        catalog.read(callback)

    def grow() -> None:
        catalog.apply(*[big(number) for number in range(1, 11)])
        order.append("grown")

    threads = [threading.Thread(target=read), threading.Thread(target=grow)]
    threads[0].start()
    assert inside.wait(60)
    threads[1].start()
    wait_until(lambda: catalog._env._readers._is_shut)
    leave.set()
    for thread in threads:
        thread.join(60)
    assert order == ["left", "grown"]


def test_a_reader_that_stays_fails_the_batch_and_not_the_catalog(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latewood.catalog.env._READERS_WAIT_S", 0.01)
    catalog = desk.open(map_bytes=256 * KiB, map_headroom_bytes=0)
    inside, leave = threading.Event(), threading.Event()

    def stay(_: object) -> None:
        inside.set()
        leave.wait(60)

    thread = threading.Thread(target=catalog.read, args=(stay,))
    thread.start()
    assert inside.wait(60)
    with pytest.raises(UnavailableError, match="reader of this process"):
        catalog.apply(*[big(number) for number in range(1, 11)])
    assert catalog.info()["map_size"] == 256 * KiB  # never under a reader's feet
    leave.set()
    thread.join(60)
    catalog.apply(*[big(number) for number in range(1, 11)])


def test_a_catalog_larger_than_its_options_opens(desk: Desk) -> None:
    catalog = desk.open()
    catalog.apply(*[big(number) for number in range(1, 31)])
    catalog.close()
    again = desk.open(map_bytes=256 * KiB)
    assert again.read(lambda view: view.count(DB)) == 30
    again.apply(*[big(number) for number in range(31, 41)])


# -- other processes --------------------------------------------------------------------------------------


def test_another_process_is_refused_to_write_with_our_pid(desk: Desk) -> None:
    desk.open()
    script = "import sys; from latewood.catalog import Catalog; Catalog.open(sys.argv[1])"
    result = run_python(script, desk.path)
    assert f"is being written by process {os.getpid()}" in result.stderr


def test_another_process_reads_what_is_committed(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog)
    result = run_python(READ + "print(c.read(lambda v: v.db(1).name), c.generation())", desk.path)
    assert result.stdout.split() == ["clicks", str(catalog.generation())], result.stderr


def test_another_process_keeps_reading_while_the_map_grows(desk: Desk) -> None:
    catalog = desk.open(map_bytes=512 * KiB, map_headroom_bytes=0)
    put_chunks(catalog, 10)
    script = READ + (
        "from latewood.catalog import CatalogOptions; c.close();"
        "c = Catalog.open(sys.argv[1], CatalogOptions(map_bytes=524288, map_headroom_bytes=0), mode='r');"
        "print(sum(1 for _ in c.scan_chunks(1)), flush=True); input();"
        "print(sum(1 for _ in c.scan_chunks(1)), c.info()['map_size'] > 1_000_000)"
    )
    child = _Child(script, desk.path)
    assert child.line() == "10"
    for start in range(0, 20_000, 5000):
        write(
            catalog,
            lambda txn, start=start: [  # type: ignore[misc]
                txn.upsert_chunk(ChunkKey(1, n), chunk(n)) for n in range(start + 1, start + 5001)
            ],
        )
    assert child.line("go") == "20000 True"
    assert child.end() == 0


class _Child:
    """A process to talk to, line by line."""

    def __init__(self, script: str, path: Path) -> None:
        import subprocess  # noqa: PLC0415 - here alone
        import sys  # noqa: PLC0415

        self._process = subprocess.Popen(
            [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def line(self, said: str = "") -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if said:
            self._process.stdin.write(said + "\n")
            self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def end(self) -> int:
        self._process.communicate(timeout=60)
        return self._process.returncode


def test_the_slots_of_dead_readers_are_cleared(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog)
    catalog.close()
    script = READ + "t = c._env._env.begin(); t.get(b'x'); import os; os._exit(0)"
    holder = desk.open()  # keeps LMDB's lock file from being made anew
    assert run_python(script, desk.path).returncode == 0
    assert holder._env._env.reader_check() == 1
    assert holder.read(lambda view: view.count(CHUNK)) == 0


# -- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EIO, Poisoned),
        (errno.EACCES, ReadOnlyError),
        (errno.EROFS, ReadOnlyError),
        (errno.ENOENT, NotFoundError),
        (errno.EMFILE, StorageError),
    ],
)
def test_errors_of_the_system_are_sorted(code: int, expected: type[LatewoodError]) -> None:
    error = lmdb.Error("mdb_env_open", code)
    error.code = code  # type: ignore[misc]
    found = translated(error, Path("c"))
    assert type(found) is expected
