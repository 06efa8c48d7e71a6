"""A client of a cluster that fails to end well leaves no thread behind."""

import threading

import pytest

from latewood.errors import StorageError
from latewood.replica.client.asynchronous import AsyncClient
from tests.replica.test_client_sync import connected, running


def test_a_client_whose_connections_fail_to_close_ends_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    close = AsyncClient.close

    async def failing(client: AsyncClient) -> None:
        await close(client)
        raise StorageError("a socket is broken")

    with running() as cluster:
        client = connected(cluster)
        client.partition(7).append(b"a")
        with monkeypatch.context() as patch:
            patch.setattr(AsyncClient, "close", failing)
            with pytest.raises(StorageError):
                client.close()
        assert "latewood-client" not in {thread.name for thread in threading.enumerate()}
        client.close()
