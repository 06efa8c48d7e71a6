"""Everything works on Spark Connect: a client without a JVM, and a server in another process."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import latewood
from latewood.runtime import Store
from tests.spark.conftest import flush
from tests.spark.quick_java import quick_java

DRIVER: Final = Path(__file__).with_name("connect_driver.py")

pytestmark = [pytest.mark.slow, pytest.mark.needs("connect", "java")]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A Spark Connect server on this machine; its address."""
    port = free_port()
    command = [sys.executable, str(DRIVER), "server", str(port), str(tmp_path)]
    log = tmp_path / "server.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command,
            env={**os.environ, **quick_java(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", log.read_text()[-3000:]
            yield f"sc://127.0.0.1:{port}"
            process.communicate("")
        finally:
            process.kill()


def test_a_client_reads_writes_streams_and_runs_jobs(server: str, tmp_path: Path) -> None:
    with latewood.open(tmp_path / "events", segment_bytes_max=8192) as log:
        log.append_many([b"%d" % number for number in range(1000)], durable=True)
    with Store.open(tmp_path / "lake") as store:
        clicks = store.create_database("clicks", shards=2, segment_bytes_max=4096)
        for batch in range(2):
            keys = [b"user-%d" % (number % 7) for number in range(200)]
            clicks.append_many([b"%d/%d" % (batch, number) for number in range(200)], keys, durable=True)
            if not batch:
                flush(store, "clicks")
    result = subprocess.run(
        [sys.executable, DRIVER, "client", server, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert json.loads(result.stdout) == {
        "kind": "pyspark.sql.connect.session",
        "log": 1000,
        "table": 400,
        "count": 400,
        "segments": 1000,
        "once": 10,
        "streamed": 1000,
        "wrong option": True,
        "jobs": [["flush", "clicks", 200], ["checkpoint", "clicks", 2]],
        "sound": [[True, "clicks"]],
        "flushed": 400,
    }
    with Store.open(tmp_path / "lake", mode="r") as store:
        assert all(shard.log_first_sequence == shard.next_sequence for shard in store.database("clicks").stats())
        assert len({record.payload for record in store.database("clicks").scan()}) == 400
    with latewood.open(tmp_path / "copy", mode="r") as log:
        assert sorted(int(record.payload) for record in log.scan()) == list(range(1000))
