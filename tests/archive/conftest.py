"""What the tests of the archive share: S3 servers, started once."""

from collections.abc import Iterator

import pytest

from tests.archive.servers import Server, moto_server, weed_server


@pytest.fixture(scope="session")
def moto() -> Iterator[Server]:
    with moto_server() as server:
        yield server


@pytest.fixture(scope="session")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with weed_server(tmp_path_factory.mktemp("weed")) as server:
        yield server
