"""The sink on a real cluster of two workers: a task that runs twice and an executor that is killed write once."""

import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.spark.test_sink import numbers, staged

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("sink_cluster.py")
START_S = 90


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def cluster(home: Path, environment: dict[str, str]) -> Iterator[str]:
    """Run a master and two workers, each on a loopback address of its own, so that Spark takes them for hosts."""
    import pyspark  # noqa: PLC0415 - only this needs it

    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    for address in ("127.0.0.2", "127.0.0.3"):
        worker = [f"{deploy}.worker.Worker", "--host", address, "--cores", "1", "--memory", "600m", "--webui-port", "0"]
        commands.append([*worker, "--work-dir", str(home / address), master])
    processes = []
    try:
        for number, command in enumerate(commands):
            log = (home / f"cluster-{number}.log").open("w")
            env = {key: value for key, value in environment.items() if key != "SPARK_LOCAL_IP"}
            processes.append(subprocess.Popen([str(program), *command], env=env, stdout=log, stderr=log))
            log.close()
            if number == 0:
                wait_for(port)
        yield master
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("the master did not start")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_speculation_and_a_killed_executor_write_once(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    environment["SPARK_DAEMON_MEMORY"] = "256m"
    with cluster(tmp_path, environment) as master:
        command = [sys.executable, str(DRIVER), str(tmp_path), master]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "speculated").exists()
    assert (tmp_path / "disturbed-2").exists()
    assert numbers(tmp_path / "log") == Counter(range(4000))
    assert staged(tmp_path / "log") == []
