"""Many threads on one log, and what a fork does to it."""

import multiprocessing
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest

import latewood
from latewood import ClosedError, Forked, Locked, Queue, Reader
from latewood.catalog.tables import JobKind
from latewood.forking import no_fork
from latewood.runtime import Store
from tests.forking import fork, in_child
from tests.log.desk import ROOT, Desk, payloads

THREADS = 8


@pytest.fixture(autouse=True)
def switching_often() -> Iterator[None]:
    """Let threads take turns a thousand times more often, so that races are met."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Run `work(0)`, `work(1)`, … at once; the first error of any is raised here."""
    begin = threading.Barrier(count)

    def run(number: int) -> None:
        begin.wait(60)
        work(number)

    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(run, number) for number in range(count)]:
            future.result()


@pytest.fixture(params=["plain", "flushing"])
def busy_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    """A log on the real disk that rolls all the time, with its background thread."""
    options: dict[str, Any] = {"flush_bytes": 2048, "segment_records_max": 100} if request.param == "flushing" else {}
    with latewood.open(tmp_path / "log", segment_bytes_max=4096, **options) as log:
        yield log


def test_single_appends_of_many_threads_leave_no_gap_and_keep_each_thread_s_order(busy_log: Queue) -> None:
    given: dict[int, list[int]] = {}

    def produce(thread: int) -> None:
        given[thread] = [busy_log.append(f"{thread}:{number}".encode()) for number in range(400)]

    in_threads(THREADS, produce)
    assert sorted(sequence for sequences in given.values() for sequence in sequences) == list(range(THREADS * 400))
    found = payloads(busy_log)
    for thread, sequences in given.items():
        assert sequences == sorted(sequences)
        assert [found[sequence] for sequence in sequences] == [f"{thread}:{number}".encode() for number in range(400)]


def test_the_records_of_a_batch_are_neighbours_whatever_other_threads_append(busy_log: Queue) -> None:
    ranges: list[tuple[int, int, range]] = []

    def produce(thread: int) -> None:
        for number in range(25):
            if thread % 2:
                for one in range(5):
                    busy_log.append(f"single {thread} {number} {one}".encode())
            else:
                batch = [f"batch {thread} {number} {one}".encode() for one in range(30)]
                ranges.append((thread, number, busy_log.append_many(batch)))

    in_threads(THREADS, produce)
    found = payloads(busy_log)
    assert len(found) == busy_log.next_sequence == 4 * 25 * 30 + 4 * 25 * 5
    assert len(set(found)) == len(found)
    for thread, number, sequences in ranges:
        expected = [f"batch {thread} {number} {one}".encode() for one in range(30)]
        assert found[sequences.start : sequences.stop] == expected


def test_what_many_threads_wrote_is_there_after_reopening(busy_log: Queue) -> None:
    in_threads(THREADS, lambda thread: busy_log.append_many([bytes([thread])] * 300, durable=True))
    assert busy_log.durable_sequence == THREADS * 300
    busy_log.close()
    with latewood.open(busy_log.path) as again:
        found = payloads(again)
    assert sorted(found) == sorted(bytes([thread]) for thread in range(THREADS) for _ in range(300))


def test_readers_beside_writers_see_every_record_once_and_in_order(busy_log: Queue) -> None:
    total = 4 * 500

    def work(thread: int) -> None:
        if thread < 4:
            for number in range(500):
                busy_log.append(f"{thread}:{number}".encode())
            return
        seen = 0
        last: dict[bytes, int] = defaultdict(lambda: -1)
        with busy_log.reader(f"r{thread}", start="earliest") as reader:
            while seen < total:
                for record in reader.poll(timeout=60):
                    assert record.sequence == seen
                    producer, _, its_number = record.payload.partition(b":")
                    assert int(its_number) == last[producer] + 1
                    last[producer] += 1
                    seen += 1

    in_threads(6, work)


def test_flush_roll_stats_and_cleanup_beside_appends_do_no_harm(busy_log: Queue) -> None:
    with busy_log.reader("all") as reader:

        def work(thread: int) -> None:
            for number in range(60):
                match thread:
                    case 0 | 1:
                        busy_log.append_many([f"{thread} {number}".encode()] * 20)
                    case 2:
                        busy_log.flush()
                    case 3:
                        busy_log.roll()
                    case 4:
                        assert busy_log.stats().record_count >= 0
                    case 5:
                        busy_log.set_ext_id(number)
                    case _:
                        busy_log.cleanup()

        in_threads(7, work)
        # Nobody had passed any record, so nothing may be gone.
        assert len(list(reader)) == 2 * 60 * 20


def test_two_cleanups_at_once_delete_no_more_than_one_would() -> None:
    for _ in range(20):
        with Desk() as desk:
            log = desk.open(segment_records_max=1)
            log.append_many([b"x"] * 10)
            with log.reader("half", start=5):
                deleted: list[list[int]] = []
                in_threads(4, lambda _, log=log, deleted=deleted: deleted.append(log.cleanup()))  # type: ignore[misc]
                assert max(deleted) == [0, 1, 2, 3, 4]
                assert log.first_sequence == 5


def test_appends_that_meet_a_close_are_written_or_refused(tmp_path: Path) -> None:
    log = latewood.open(tmp_path / "log", segment_bytes_max=4096)
    acknowledged: list[bytes] = []

    def work(thread: int) -> None:
        if thread == 0:
            while log.next_sequence < 200:
                log.append(b"from the closer")
            log.close()
            return
        with pytest.raises(ClosedError):
            append_for_ever(thread)

    def append_for_ever(thread: int) -> None:
        for number in range(10**9):
            payload = f"{thread}:{number}".encode()
            log.append(payload)
            acknowledged.append(payload)

    in_threads(4, work)
    with latewood.open(tmp_path / "log", mode="r") as again:
        assert set(acknowledged) <= set(payloads(again))


def test_a_follower_in_another_thread_is_told_when_the_log_is_closed(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a")
    reading = threading.Event()

    def follow(reader: Reader) -> None:
        for record in reader.follow():
            assert record.payload == b"a"
            reading.set()

    def run() -> None:
        with log.reader("r") as reader, pytest.raises(ClosedError):
            follow(reader)

    thread = threading.Thread(target=run)
    thread.start()
    assert reading.wait(60)
    log.close()
    thread.join(60)
    assert not thread.is_alive()


# -- fork ---------------------------------------------------------------------------------------------


def refused_after_fork(log: Queue) -> None:
    for use in (
        lambda: log.append(b"child"),
        lambda: log.append(b"child", durable=True),
        lambda: log.append_many([b"child"]),
        log.flush,
        log.roll,
        log.cleanup,
        lambda: log.set_ext_id(3),
        lambda: payloads(log),
        lambda: log.next_sequence,
        log.stats,
        lambda: log.reader("child"),
    ):
        with pytest.raises(Forked, match="open it again"):
            use()
    log.close()


def test_a_child_is_told_to_reopen_and_the_parent_goes_on(tmp_path: Path) -> None:
    with latewood.open(tmp_path / "log", segment_bytes_max=4096) as log:
        log.append(b"before")
        in_child(lambda: refused_after_fork(log))
        assert log.append(b"after") == 1
        log.roll()
        log.flush()
        assert payloads(log) == [b"before", b"after"]


def test_a_child_may_open_the_log_again_to_read(tmp_path: Path) -> None:
    with latewood.open(tmp_path / "log", segment_bytes_max=4096) as log:
        log.append(b"before")

        def work() -> None:
            with latewood.open(tmp_path / "log", mode="r") as mine:
                assert payloads(mine) == [b"before"]
            with pytest.raises(Locked):
                latewood.open(tmp_path / "log")

        in_child(work)


def test_a_child_may_write_once_its_parent_has_closed(tmp_path: Path) -> None:
    log = latewood.open(tmp_path / "log", segment_bytes_max=4096)
    log.append(b"parent")
    closed = os.pipe()
    child = fork()
    if child == 0:  # pragma: no cover - another process
        os.read(closed[0], 1)
        with latewood.open(tmp_path / "log", segment_bytes_max=4096) as mine:
            mine.append(b"child")
        os._exit(0)
    log.close()
    os.write(closed[1], b".")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for end in closed:
        os.close(end)
    assert payloads(latewood.open(tmp_path / "log", mode="r")) == [b"parent", b"child"]


def test_a_reader_of_the_parent_refuses_in_the_child(tmp_path: Path) -> None:
    with latewood.open(tmp_path / "log", segment_bytes_max=4096) as log:
        log.append_many([b"a", b"b"])
        with log.reader("r") as reader:
            assert reader.next() is not None

            def work() -> None:
                for use in (
                    reader.commit,
                    reader.next,
                    reader.poll,
                    lambda: list(reader),
                    lambda: reader.wait(0),
                    reader.read_arrow,
                    reader.lag,
                    lambda: reader.seek(sequence=0),
                    lambda: reader.sequence,
                ):
                    with pytest.raises(Forked, match="open it again"):
                        use()
                with reader:
                    pass

            in_child(work)
            reader.commit()
            assert reader.committed_sequence == 1
            assert [record.payload for record in reader] == [b"b"]


def test_a_fork_in_the_midst_of_other_threads_appends_does_not_hang_the_child(tmp_path: Path) -> None:
    with latewood.open(tmp_path / "log", segment_bytes_max=1 << 16) as log:
        stop = threading.Event()

        def append() -> None:
            while not stop.is_set():
                log.append(b"x")
                log.append_many([b"y", b"z"])

        threads = [threading.Thread(target=append) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(5):
                in_child(lambda: refused_after_fork(log))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        count = log.next_sequence
        assert len(payloads(log)) == count


def test_a_log_in_memory_is_told_of_a_fork_too() -> None:
    with Desk() as desk:
        log = desk.open()
        log.append(b"a")
        in_child(lambda: refused_after_fork(log))
        assert log.path == ROOT
        assert log.append(b"b") == 1


LATE: Final = ("latewood.log.arrow", "latewood.runtime.columns", "latewood.archive.chunk_reader")


class Finder:
    """Finds nothing, and notes what is looked for, and whether another thread could fork meanwhile."""

    seen: ClassVar[dict[str, bool]] = {}

    @classmethod
    def find_spec(cls, name: str, *_: object) -> None:
        """Note a name; the next finder finds it."""
        lock: Any = no_fork()
        cls.seen[name] = lock._is_owned()


def late_imports(lake: Path) -> dict[str, bool]:
    """Use a store in a new process; return for each late module whether a fork is held off while it is imported."""
    sys.meta_path.insert(0, Finder)
    with Store.open(lake) as store:
        db = store.create_database("clicks")
        db.append(b"x")
        store.run_job(JobKind.FLUSH, "clicks", seal=True)
        db.to_arrow()
    return {name: Finder.seen[name] for name in LATE}


def test_what_a_call_imports_late_keeps_other_threads_from_forking(tmp_path: Path) -> None:
    """A module that another thread was importing at the fork can never be imported in the child."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # A new process, which has imported nothing of it yet.
        assert pool.apply(late_imports, [tmp_path / "lake"]) == dict.fromkeys(LATE, True)
