"""S3 servers of this machine: each on free loopback ports, in a directory of its own, and ended by its process id."""

import json
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from latewood.archive.object_store import ObjectStoreOptions, ObjectStoreTier

ACCESS_KEY: Final = "AKLATEWOODTEST"
SECRET_KEY: Final = "very-secret-latewood"  # noqa: S105 - of a server that lives as long as a test
BUCKET: Final = "latewood"
_START_S: Final = 60
_GRPC_DISTANCE: Final = 10_000
_PORTS_WITH_GRPC: Final = range(20_000, 50_000, 7)


class Server(NamedTuple):
    """A running S3 server with one bucket."""

    endpoint: str
    process: "subprocess.Popen[bytes]"

    def tier(self, prefix: str, *, bucket: str = BUCKET, versioned: bool = False, **changes: object) -> ObjectStoreTier:
        if versioned:
            _make_versioned(self.endpoint, bucket)
        settings = {
            "endpoint": self.endpoint,
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
            "region": "us-east-1",
        }
        fields = {"allow_http": True, "settings": settings, "retries_max": 2, "backoff_ms": 10, **changes}
        return ObjectStoreTier.open(f"s3://{bucket}/{prefix}", ObjectStoreOptions(**fields))  # type: ignore[arg-type]


@contextmanager
def moto_server() -> Iterator[Server]:
    """Quick, in Python, and without a check of credentials."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, Path.cwd(), f"http://127.0.0.1:{port}") as server:
        yield server


@contextmanager
def weed_server(directory: Path) -> Iterator[Server]:
    """SeaweedFS: a real one, which checks credentials and conditions."""
    master, volume, filer, s3 = free_ports(4)
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
    config = directory / "s3.json"
    identity = {"name": "test", "credentials": credentials, "actions": actions}
    config.write_text(json.dumps({"identities": [identity]}))
    program = Path(sys.executable).with_name("weed")
    command = [str(program), "server", f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += ["-master.telemetry=false", f"-master.port={master}", "-master.volumeSizeLimitMB=64"]
    command += [f"-volume.port={volume}", "-volume.max=8", "-filer", f"-filer.port={filer}"]
    command += ["-s3", f"-s3.port={s3}", f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    with _running(command, directory, f"http://127.0.0.1:{s3}") as server:
        yield server


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, nor on those 10,000 above, where SeaweedFS puts its gRPC."""
    found: list[int] = []
    with ExitStack() as held:
        # A server binds its ports later: whoever else looks until then, another run too, begins somewhere else.
        start = random.SystemRandom().randrange(len(_PORTS_WITH_GRPC))
        for port in [*_PORTS_WITH_GRPC[start:], *_PORTS_WITH_GRPC[:start]]:
            try:
                for number in (port, port + _GRPC_DISTANCE):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", number))
            except OSError:
                continue
            found.append(port)
            if len(found) == count:
                return found
    raise AssertionError("no free port")


@contextmanager
def _running(command: list[str], directory: Path, endpoint: str) -> Iterator[Server]:
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _make_bucket(process, endpoint)
        yield Server(endpoint, process)
    finally:
        process.kill()
        process.wait()


def _client(endpoint: str) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        region_name="us-east-1",
        config=Config(connect_timeout=2, read_timeout=10, retries={"max_attempts": 0}),
    )


def _make_versioned(endpoint: str, bucket: str) -> None:
    client = _client(endpoint)
    client.create_bucket(Bucket=bucket)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})


def _make_bucket(process: "subprocess.Popen[bytes]", endpoint: str) -> None:
    client = _client(endpoint)
    deadline = time.monotonic() + _START_S
    while True:
        try:
            client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key="ready", Body=b"ready")
            client.delete_object(Bucket=BUCKET, Key="ready")
        except (BotoCoreError, ClientError) as error:
            if getattr(error, "response", {}).get("Error", {}).get("Code") == "BucketAlreadyOwnedByYou":
                client.put_object(Bucket=BUCKET, Key="ready", Body=b"ready")
            assert process.poll() is None, f"the server ended with {process.returncode}"
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.1)
        else:
            return
