"""Python processes of Spark connect before they import anything that takes long, and are as they would be without."""

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from latewood.spark import worker_connect, worker_start
from latewood.spark.local_session import prepare_environment, worker_python
from latewood.spark.worker_connect import connect, without_archives

SOURCE_RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
SECRET: Final = "open sesame"  # noqa: S105 - of a JVM that is played
WAIT_S: Final = 120
LENGTH: Final = struct.Struct(">i")


class JVM:
    """The side of Spark: waits for a worker, on a Unix socket or a port."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX) if path else socket.socket()
        self._listener.bind(str(path) if path else ("127.0.0.1", 0))
        self._listener.listen(4)
        self._listener.settimeout(WAIT_S)

    @property
    def environment(self) -> dict[str, str]:
        if self.path:
            return {"PYTHON_WORKER_FACTORY_SOCK_PATH": str(self.path), "PYTHON_UNIX_DOMAIN_ENABLED": "True"}
        port = self._listener.getsockname()[1]
        return {"PYTHON_WORKER_FACTORY_PORT": str(port), "PYTHON_WORKER_FACTORY_SECRET": SECRET}

    def accept(self, answer: bytes = b"ok") -> socket.socket:
        connection, _ = self._listener.accept()
        connection.settimeout(WAIT_S)
        if not self.path:
            (length,) = LENGTH.unpack(connection.recv(LENGTH.size, socket.MSG_WAITALL))
            assert connection.recv(length, socket.MSG_WAITALL) == SECRET.encode()
            connection.sendall(LENGTH.pack(len(answer)) + answer)
        return connection

    def has_another(self) -> bool:
        self._listener.settimeout(0)
        try:
            self._listener.accept()
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._listener.close()


@pytest.fixture(params=["unix", "port"])
def jvm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JVM]:
    one = JVM(tmp_path / "socket" if request.param == "unix" else None)
    yield one
    one.close()


def start(jvm: JVM, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    env = {**os.environ, **jvm.environment, **environment}
    return subprocess.Popen(
        [worker_python(), *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_worker_is_authenticated_before_it_is_handed_on(jvm: JVM) -> None:
    with ThreadPoolExecutor(1) as thread:
        accepted = thread.submit(jvm.accept)
        mine = connect(jvm.environment)
        theirs = accepted.result()
        assert mine is not None
        mine.sendall(b"7")
        assert theirs.recv(1) == b"7"
        theirs.close()
        mine.close()


def test_a_worker_whose_secret_is_wrong_fails() -> None:
    jvm = JVM(None)
    with ThreadPoolExecutor(1) as thread:
        accepted = thread.submit(jvm.accept, b"err")
        with pytest.raises(ConnectionRefusedError, match="err"):
            connect(jvm.environment)
        accepted.result().close()
    jvm.close()


def test_a_daemon_makes_no_connection_of_its_own() -> None:
    assert connect({"PYTHON_WORKER_FACTORY_SOCK_DIR": "/tmp", "PYTHON_WORKER_FACTORY_SECRET": SECRET}) is None  # noqa: S108


@pytest.mark.parametrize(
    ("paths", "installed", "kept"),
    [
        ("/v/pyspark/python/lib/pyspark.zip:/v/pyspark/jars/core.jar:/mine", "/v/pyspark", "/mine"),
        ("/opt/spark/python/lib/pyspark.zip:/mine", "/v/pyspark", "/opt/spark/python/lib/pyspark.zip:/mine"),
        ("/v/pyspark/python/lib/pyspark.zip", "", "/v/pyspark/python/lib/pyspark.zip"),
        ("/v/pyspark/python:/v/pyspark-extra/a.zip", "/v/pyspark", "/v/pyspark/python:/v/pyspark-extra/a.zip"),
        ("", "/v/pyspark", ""),
    ],
)
def test_only_archives_of_the_pyspark_that_is_installed_are_left_out(paths: str, installed: str, kept: str) -> None:
    assert without_archives(paths, installed) == kept


def test_a_worker_connects_before_it_imports_pyspark(jvm: JVM, tmp_path: Path) -> None:
    fake = tmp_path / "path" / "pyspark"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("raise SystemExit('imported')")
    with start(jvm, "-m", "pyspark.any", PYTHONPATH=str(fake.parent)) as process:
        jvm.accept().close()
        assert "imported" in process.communicate()[1]


@pytest.mark.slow
def test_the_reader_of_a_stream_takes_the_connection_that_is_there(jvm: JVM) -> None:
    with start(jvm, "-m", SOURCE_RUNNER) as process:
        connection = jvm.accept()
        assert LENGTH.unpack(connection.recv(LENGTH.size, socket.MSG_WAITALL))[0] == process.pid
        assert not jvm.has_another()
        connection.close()
        process.communicate()


def test_a_module_runs_as_with_the_interpreter(jvm: JVM, tmp_path: Path) -> None:
    package = tmp_path / "pyspark"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "util.py").write_text("local_connect_and_auth = None")
    (package / "one.py").write_text(
        "import os, sys; print(__name__, sys.modules['__main__'].__dict__ is globals(), sys.argv[1:], sys.path[0])\n"
        "print(*sorted(name for name in os.environ if name.startswith('LATEWOOD')))"
    )
    env = {**os.environ, **jvm.environment, "PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": ""}
    command = ["-m", "pyspark.one", "a b", "c"]
    plain = subprocess.run(
        [sys.executable, *command], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    with subprocess.Popen(
        [worker_python(), *command], env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        jvm.accept().close()
        assert process.communicate()[0] == plain.stdout
    assert plain.stdout.startswith("__main__ True ['a b', 'c'] ")


def test_all_that_is_no_module_of_spark_goes_to_the_interpreter() -> None:
    command = [worker_python(), "-c", "import sys; print(sys.executable, sys.argv)", "a b"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{sys.executable} ['-c', 'a b']"


@pytest.mark.parametrize(("master", "is_behind"), [("local[2,3]", True), ("spark://127.0.0.1:7077", False)])
def test_workers_connect_early_where_all_of_them_are_processes_of_this_user(
    master: str, monkeypatch: pytest.MonkeyPatch, *, is_behind: bool
) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ})
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.pop(name, None)
    prepare_environment(master)
    expected = worker_python() if is_behind else sys.executable
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == expected


def test_an_interpreter_that_was_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "PYSPARK_PYTHON": "/usr/bin/python9"})
    prepare_environment()
    assert os.environ["PYSPARK_PYTHON"] == "/usr/bin/python9"


@pytest.mark.parametrize("chosen", ["", sys.executable], ids=["an empty name", "this interpreter"])
def test_an_interpreter_that_is_the_sessions_own_connects_early_too(
    chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "PYSPARK_PYTHON": chosen, "PYSPARK_DRIVER_PYTHON": chosen})
    prepare_environment()
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == worker_python()


def test_the_script_of_a_session_on_this_machine_is_not_kept_for_one_on_a_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        os, "environ", {**os.environ, "PYSPARK_PYTHON": "", "PYSPARK_DRIVER_PYTHON": "/usr/bin/python9"}
    )
    prepare_environment("local[2]")
    prepare_environment("spark://other:7077")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == "/usr/bin/python9"


def test_both_halves_agree_on_the_variable() -> None:
    assert worker_connect.CONNECTION == worker_start.CONNECTION
