"""Web servers with several workers: gunicorn, which forks them, and uvicorn, which spawns them.

Their workers read the store that another process has open, and a worker that was killed is replaced by one that does.
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from latewood.runtime import Store
from tests.patience import SECONDS_MAX, wait_until
from tests.runtime.web_app import NAME, VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.needs("web")]

WORKERS: Final = 2
REPOSITORY: Final = Path(__file__).parents[2]
APP: Final = "tests.runtime.web_app"
GUNICORN: Final = (
    "gunicorn",
    "--bind=fd://{socket}",
    "--preload",
    f"--config=python:{APP}",
    "--no-control-socket",  # It would be in the home directory.
    f"{APP}:preloaded()",
)
UVICORN: Final = ("uvicorn", "--fd={socket}", f"{APP}:asgi")


@pytest.fixture
def root(home: Path) -> Path:
    return home / "lake"


def is_gone(process: int) -> bool:
    """Whether a process has ended, and its parent knows."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


class Server:
    """A server, as a process with children."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self._port = process, port

    def ask(self, path: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=SECONDS_MAX)
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def ask_all(self, path: str) -> dict[int, Any]:
        """Ask until as many workers have answered as there are, and return by worker what it found."""
        found: dict[int, Any] = {}

        def ask(_: int) -> None:
            told = self.ask(path)
            found[told["worker"]] = told["found"]

        def have_all() -> bool:
            list(pool.map(ask, range(2 * WORKERS)))
            return len(found) == WORKERS

        with ThreadPoolExecutor(2 * WORKERS) as pool:
            wait_until(have_all)
        return found

    def kill(self, worker: int) -> None:
        """Kill a worker, and return once another one serves in its place."""
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: is_gone(worker))
        assert worker not in self.ask_all("/records")

    def stop(self) -> None:
        """Have the server end as its operator does."""
        self.process.terminate()
        assert self.process.wait(SECONDS_MAX) == 0


Start = Callable[[Sequence[str]], Server]


@pytest.fixture
def start(root: Path) -> Iterator[Start]:
    """Start a server; its process and its workers are a group of their own, which is killed in the end."""
    started = []

    def run(command: Sequence[str]) -> Server:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            arguments = [argument.format(socket=listening.fileno()) for argument in command]
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments, f"--workers={WORKERS}"],
                cwd=REPOSITORY,
                env={**os.environ, VARIABLE: str(root)},
                pass_fds=[listening.fileno()],
                start_new_session=True,
            )
            started.append(process)
            return Server(process, listening.getsockname()[1])

    yield run
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def payloads(store: Store) -> list[str]:
    return sorted(record.payload.decode() for record in store.database(NAME).scan())


@pytest.mark.parametrize("kind", [("--worker-class=sync",), ("--worker-class=gthread", "--threads=4")])
def test_workers_that_gunicorn_forks_serve_the_store_that_its_master_has_open(
    root: Path, start: Start, kind: tuple[str, ...]
) -> None:
    server = start([*GUNICORN, *kind])
    before = server.ask_all("/records")
    assert list(before.values()) == [["a", "b"]] * WORKERS

    refusals = [text for found in server.ask_all("/inherited").values() for text in found]
    assert all("open it again" in text for text in refusals), refusals

    server.kill(min(before))
    assert list(server.ask_all("/records").values()) == [["a", "a worker has ended", "b"]] * WORKERS

    server.stop()
    with Store.open(root) as store:
        assert payloads(store) == ["a", *["a worker has ended"] * (1 + WORKERS), "b"]
        store.database(NAME).append(b"c", durable=True)


def test_workers_that_uvicorn_spawns_serve_the_store_that_another_process_has_open(root: Path, start: Start) -> None:
    with Store.open(root) as store:
        db = store.create_database(NAME, shards=2)
        db.append_many([b"a", b"b"])
        server = start(UVICORN)
        before = server.ask_all("/records")
        assert list(before.values()) == [["a", "b"]] * WORKERS

        db.append(b"c")
        server.kill(min(before))
        assert list(server.ask_all("/records").values()) == [["a", "b", "c"]] * WORKERS
        server.stop()
        assert payloads(store) == ["a", "b", "c"]
