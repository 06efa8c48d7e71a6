"""A real cluster of two workers: a task that runs twice and an executor that is killed write once; jobs use both."""

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

from tests.spark.quick_java import quick_java
from tests.spark.test_jobs import check, content, make_pond, ranges
from tests.spark.test_sink import numbers, staged

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("sink_cluster.py")
START_S = 300
WORKERS = ("127.0.0.2", "127.0.0.3")

pytestmark = [pytest.mark.slow, pytest.mark.needs("java"), pytest.mark.timeout(600)]


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
    for address in WORKERS:
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


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one driver on the cluster has done."""
    home = tmp_path_factory.mktemp("cluster")
    make_pond(home / "pond")
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, **quick_java(home), "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    with cluster(home, environment) as master:
        command = [sys.executable, str(DRIVER), str(home), master]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return home


def test_speculation_and_a_killed_executor_write_once(scene: Path) -> None:
    assert (scene / "speculated").exists()
    assert (scene / "disturbed-2").exists()
    assert numbers(scene / "log") == Counter(range(4000))
    assert staged(scene / "log") == []


def test_a_command_has_its_tasks_done_on_both_workers(scene: Path, tmp_path: Path) -> None:
    assert {path.name for path in (scene / "hosts").iterdir()} == set(WORKERS)
    assert [payload for *_, payload in content(scene / "pond")] == [
        payload for *_, payload in content(make_pond(tmp_path / "pond"))
    ]
    assert len(ranges(scene / "pond")) > len(ranges(tmp_path / "pond")), "chunks were made of what was in the logs"
    check(scene / "pond")
