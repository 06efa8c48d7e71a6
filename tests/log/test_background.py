"""The one background thread, and the words on which readers sleep."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import latewood
from latewood import ClosedError, StorageError
from latewood.limits import MiB
from latewood.log.housekeeper import Housekeeper
from latewood.log.layout import Layout
from latewood.log.wake import Wake
from latewood.testing import MemFS
from tests.log.desk import ROOT, Desk, payloads
from tests.patience import wait_until

# -- the housekeeper ----------------------------------------------------------------------------------


def named_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "latewood-housekeeper"]


def test_the_work_is_done_once_for_each_time_that_it_is_asked_for() -> None:
    done = threading.Semaphore(0)
    housekeeper = Housekeeper(done.release)
    for _ in range(3):
        housekeeper.poke()
        assert done.acquire(timeout=60)
    housekeeper.stop()


def test_the_work_is_done_again_when_it_said_that_more_is_due() -> None:
    done = threading.Semaphore(0)
    waits = [0.0, 0.001, None]

    def work() -> float | None:
        done.release()
        return waits.pop(0) if waits else None

    housekeeper = Housekeeper(work)
    housekeeper.poke()
    for _ in range(3):
        assert done.acquire(timeout=60)
    housekeeper.stop()


def test_the_thread_lives_on_after_an_error_and_ends_when_the_log_is_closed() -> None:
    errors = [StorageError("not now"), None, ClosedError("closed")]
    done = threading.Semaphore(0)

    def work() -> None:
        done.release()
        error = errors.pop(0)
        if error:
            raise error

    housekeeper = Housekeeper(work)
    for _ in range(3):
        housekeeper.poke()
        assert done.acquire(timeout=60)
    thread = housekeeper._thread
    assert thread is not None
    thread.join(60)
    assert not thread.is_alive()
    housekeeper.stop()


def test_a_small_log_has_no_thread_and_closing_ends_it() -> None:
    before = named_threads()
    with latewood.open(ROOT, fs=MemFS(), segment_bytes_max=4 * MiB) as log:
        log.append(b"small")
        assert named_threads() == before
        log.append_many([bytes(1000)] * 2_000)
        assert len(named_threads()) == len(before) + 1
    assert named_threads() == before


def test_a_thread_that_cannot_be_started_fails_no_append_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As without memory for its stack, or at the end of the interpreter."""

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = named_threads()
    with latewood.open(ROOT, fs=MemFS(), segment_bytes_max=4 * MiB) as log:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", fail)
            assert log.append_many([bytes(1000)] * 2_000) == range(2000)
        assert named_threads() == before
        assert "can't start new thread" in caplog.text
        log.append_many([bytes(1000)] * 1_500)
        assert len(named_threads()) == len(before) + 1
    with latewood.open(ROOT, fs=MemFS()) as log, monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        log.append_many([bytes(1000)] * 2_000)


def test_the_background_thread_bounds_what_recovery_would_scan() -> None:
    fs = MemFS()
    with latewood.open(ROOT, fs=fs, segment_bytes_max=32 * MiB) as log:
        for _ in range(3_000):
            log.append(bytes(1000))
        wait_until(lambda: log.next_sequence - log.durable_sequence <= 1_100)


def test_the_background_thread_prepares_the_next_segment() -> None:
    fs = MemFS()
    with latewood.open(ROOT, fs=fs, segment_bytes_max=4 * MiB) as log:
        log.append_many([bytes(1000)] * 3_000)
        wait_until(lambda: fs.exists(Layout(ROOT).next_segment))
        log.append_many([bytes(1000)] * 3_000)
    assert not fs.exists(Layout(ROOT).next_segment)
    with Desk(fs) as desk:
        assert len(payloads(desk.open())) == 6_000


# -- waking -------------------------------------------------------------------------------------------


def test_a_sleeper_wakes_as_soon_as_it_is_ready() -> None:
    fs = MemFS()
    fs.make_directory(ROOT)
    wake = Wake(fs, Layout(ROOT), create=True)
    ready, asleep = threading.Event(), threading.Event()

    def is_ready() -> bool:
        asleep.set()
        return ready.is_set()

    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(wake.wait(is_ready, None)))
    thread.start()
    assert asleep.wait(60)
    ready.set()
    wake.wake()
    thread.join(60)
    assert woken == [True]
    wake.close()


def test_a_sleeper_gives_up_when_its_time_is_up() -> None:
    fs = MemFS()
    fs.make_directory(ROOT)
    for wake in (Wake(fs, Layout(ROOT), create=False), Wake(fs, Layout(ROOT), create=True)):
        assert not wake.wait(lambda: False, 0.0)
        assert not wake.wait(lambda: False, 0.01)
        assert wake.wait(lambda: True, 0.0)
        wake.close()
        wake.wake()


def test_a_reader_without_the_words_looks_again_by_itself() -> None:
    fs = MemFS()
    fs.make_directory(ROOT)
    wake = Wake(fs, Layout(ROOT), create=False)
    assert wake.view is None
    looks = iter([False] * 25 + [True])
    assert wake.wait(lambda: next(looks), None)


def sleep_until_closed(wake: Wake, asleep: threading.Event, closed: threading.Event) -> bool:
    def is_ready() -> bool:
        asleep.set()
        return closed.is_set()

    return wake.wait(is_ready, None)


def test_closing_under_a_sleeper_does_no_harm() -> None:
    fs = MemFS()
    fs.make_directory(ROOT)
    with ThreadPoolExecutor(1) as pool:
        for _ in range(50):
            wake = Wake(fs, Layout(ROOT), create=True)
            asleep, closed = threading.Event(), threading.Event()
            woken = pool.submit(sleep_until_closed, wake, asleep, closed)
            assert asleep.wait(60)
            closed.set()
            wake.wake()
            wake.close()
            assert woken.result(60)
