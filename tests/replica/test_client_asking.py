"""The client asks: who leads, what is there, and changes of the cluster, of nodes that drop, delay and refuse."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest

import latewood
from latewood.errors import (
    BadName,
    ClosedError,
    ClusterUnavailable,
    DataLost,
    LatewoodError,
    NotFoundError,
    RecordTooLarge,
    UsageError,
    WaitExpired,
)
from latewood.replica.client.asynchronous import AsyncClient
from latewood.replica.client.options import ClientOptions
from latewood.replica.client.route import Route
from latewood.replica.requests import Barrier, ChangeMembers, SetCursor
from latewood.replica.wire import FRAME_BYTES_MAX
from tests.replica.fake_cluster import FakeCluster, Fault
from tests.replica.test_client import played

# -- who leads --------------------------------------------------------------------------------------------


def test_the_leader_is_found_from_any_node() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        cluster.leader = 3
        assert await client.partition(7).append(b"x") == 0
        cluster.leader = 2
        assert await client.partition(7).append(b"y") == 1

    played(act)


def test_a_leader_that_is_gone_is_looked_for_elsewhere() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        await client.partition(7).append(b"x")
        await cluster.stop(1)
        cluster.leader = 2
        assert await client.partition(7).append(b"y") == 1

    played(act)


def test_a_leader_that_cannot_be_reached_where_it_says_is_found_by_the_list() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        cluster.leader = 3
        cluster.members[3] = "127.0.0.1:1"
        assert await client.partition(7).append(b"x") == 0

    played(act)


# -- reading ----------------------------------------------------------------------------------------------


async def filled(client: AsyncClient, count: int) -> None:
    await client.partition(7).append_many([b"%d" % number for number in range(count)])


def test_records_are_read_and_scanned() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        del cluster
        partition = client.partition(7)
        assert [record async for record in partition.scan()] == []
        with pytest.raises(NotFoundError, match="not written yet"):
            await partition.read(0)
        await filled(client, 3_000)
        record = await partition.read(2_999)
        assert record == (2_999, 3_999, 3_009, b"2999")
        assert [one.sequence async for one in partition.scan()] == list(range(3_000))
        assert [one.payload async for one in partition.scan(5, 8)] == [b"5", b"6", b"7"]
        assert (await partition.info()).next_sequence == 3_000
        with pytest.raises(NotFoundError, match="there is no partition 8"):
            await client.partition(8).info()

    played(act)


def test_what_was_retired_is_lost_and_said_to_be() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        await filled(client, 10)
        cluster.first[7] = 4
        with pytest.raises(DataLost) as caught:
            await client.partition(7).read(2)
        assert (caught.value.start, caught.value.stop) == (2, 4)
        assert [one.sequence async for one in client.partition(7).scan()] == list(range(4, 10))
        reader = await client.partition(7).reader("new")
        assert reader.sequence == 4

    played(act)


def test_a_reader_goes_on_where_it_committed() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        await filled(client, 5)
        async with await client.partition(7).reader("billing") as reader:
            assert await reader.lag() == 5
            assert [(await reader.next()).payload for _ in range(2)] == [b"0", b"1"]  # type: ignore[union-attr]
            await reader.commit()
            assert await reader.next() is not None
            assert (reader.sequence, reader.committed_sequence) == (3, 2)
        with pytest.raises(ClosedError):
            await reader.next()
        again = await client.partition(7).reader("billing")
        assert [record.payload for record in await again.poll(2)] == [b"2", b"3"]
        assert [record.payload async for record in again] == [b"4"]
        assert await again.poll() == []
        assert await again.next() is None
        await again.seek(sequence=1)
        assert [record.sequence for record in await again.poll()] == [1, 2, 3, 4]
        with pytest.raises(UsageError, match="ends at 5"):
            await again.seek(sequence=6)
        assert cluster.cursors == {(7, "billing"): 2}
        await client.partition(7).remove_reader("billing")
        assert (await client.partition(7).reader("billing")).sequence == 0

    played(act, [Fault.FINE, Fault.LOSE, Fault.DROP, Fault.UNSURE])


def test_readers_are_listed_with_their_lag() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        del cluster
        partition = client.partition(7)
        assert await partition.readers() == []
        await filled(client, 5)
        starts: list[tuple[str, Any]] = [("b", 2), ("a", "latest")]
        for name, start in starts:
            await partition.reader(name, start)
        await client.partition(8).reader("other")
        assert await partition.readers() == [("a", 5, 0), ("b", 2, 3)]
        await partition.remove_reader("a")
        assert [info.name for info in await partition.readers()] == ["b"]

    played(act)


def test_a_reader_goes_to_a_time() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        await filled(client, 5)
        reader = await client.partition(7).reader("r")
        await reader.seek(timestamp=1_003)
        assert (await reader.next()).sequence == 3  # type: ignore[union-attr]
        await reader.seek(timestamp=datetime(2200, 1, 1))  # noqa: DTZ001 - it is UTC without a zone
        assert await reader.next() is None
        await reader.seek(timestamp=-5)
        assert reader.sequence == 0
        assert cluster.cursors == {(7, "r"): 0}
        assert await client.partition(7).find_timestamp(1 << 70) == 5
        wrong: list[dict[str, Any]] = [{}, {"sequence": 1, "timestamp": 1}, {"timestamp": "noon"}]
        for arguments in wrong:
            with pytest.raises(UsageError):
                await reader.seek(**arguments)

    played(act)


@pytest.mark.parametrize(("start", "sequence"), [("earliest", 0), ("latest", 5), (3, 3), ("resume", 0)])
def test_a_reader_begins_where_it_is_told(start: Any, sequence: int) -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        await filled(client, 5)
        reader = await client.partition(7).reader("r", start)
        assert reader.sequence == reader.committed_sequence == sequence == cluster.cursors[7, "r"]

    played(act)


@pytest.mark.parametrize(
    ("name", "start", "error"), [("r", "begin", UsageError), ("r", 9, UsageError), ("A b", 0, BadName)]
)
def test_a_reader_that_cannot_be_is_refused(name: str, start: Any, error: type[LatewoodError]) -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        del cluster
        with pytest.raises(error):
            await client.partition(7).reader(name, start)

    played(act)


def test_a_reader_waits_for_a_record() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        await filled(client, 1)
        reader = await client.partition(7).reader("r", "latest")
        waiting = asyncio.create_task(reader.poll(timeout=None))
        while not any(getattr(one, "wait_ms", 0) for one in cluster.seen):  # noqa: ASYNC110 - the node is a fake
            await asyncio.sleep(0)
        await client.partition(7).append(b"new")
        assert [record.payload for record in await waiting] == [b"new"]
        assert await reader.poll(timeout=0.01) == []

    played(act)


def test_a_reader_of_a_partition_that_began_anew_is_told() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        del cluster
        await filled(client, 5)
        reader = await client.partition(7).reader("r", "latest")
        await client.tear_down(7)
        with pytest.raises(NotFoundError, match="torn down"):
            await reader.next()
        with pytest.raises(NotFoundError, match="torn down"):
            await reader.lag()

    played(act)


def test_a_commit_makes_a_reader_again_that_was_removed() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        del cluster
        await filled(client, 5)
        handle = client.partition(7)
        reader = await handle.reader("r")
        await reader.poll(2)
        await handle.remove_reader("r")
        await reader.commit()
        assert await handle.load_cursor("r") == 2

    played(act)


# -- the cluster ------------------------------------------------------------------------------------------


def test_a_node_is_added_only_where_it_is() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        with pytest.raises(UsageError, match="is node 2, not node 4; nothing was changed"):
            await client.add_node(4, cluster.addresses[1])
        with pytest.raises(ClusterUnavailable, match="starts node 4 there"):
            await client.add_node(4, "127.0.0.1:9")
        assert sorted(cluster.members) == [1, 2, 3]

    played(act, timeout_ms=300)


def test_a_node_that_is_no_member_cannot_be_removed() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        with pytest.raises(NotFoundError, match="node 4 is no member of cluster 'fake', which has 1, 2, 3"):
            await client.remove_node(4)
        cluster.leader = 2  # The client is told so by the one that it asked before.
        with pytest.raises(NotFoundError, match="node 4 is no member"):
            await client.remove_node(4)
        cluster.leader = 0
        with pytest.raises(ClusterUnavailable, match="no node leads now; nothing was done"):
            await client.remove_node(4)
        cluster.leader = 3
        await cluster.stop(2)
        with pytest.raises(NotFoundError, match="node 4 is no member"):
            await client.remove_node(4)
        assert not any(isinstance(one, ChangeMembers) for one in cluster.seen)

    played(act, timeout_ms=300)


@pytest.mark.parametrize("fault", [Fault.LOSE, Fault.UNSURE_DONE, Fault.GARBAGE])
def test_a_removal_whose_answer_was_lost_is_no_error(fault: Fault) -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        assert (await client.remove_node(3)).voters == [1, 2]
        await filled(client, 1)
        await client.partition(7).reader("billing")
        cluster.faults = iter([fault])
        await client.partition(7).remove_reader("billing")
        assert await client.partition(7).readers() == []

    played(act, [fault])


def test_a_reader_that_is_not_there_cannot_be_removed() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        with pytest.raises(NotFoundError, match="partition 7 has no reader 'billing'"):
            await client.partition(7).remove_reader("billing")
        assert not any(isinstance(one, SetCursor) for one in cluster.seen)

    played(act)


def test_a_payload_that_fits_no_message_is_too_large() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        for call in (client.partition(7).append, lambda one: client.partition(7).append_many([b"a", one])):
            with pytest.raises(RecordTooLarge, match="a message to a node carries at most 33,553,408, whatever"):
                await call(bytes(FRAME_BYTES_MAX))
        assert not cluster.records

    played(act)


def test_a_cluster_id_is_a_text() -> None:
    wrong: Any = 5
    with pytest.raises(UsageError, match="cluster_id is a text, as in 'trial', not 5"):
        latewood.connect(["127.0.0.1:7301"], cluster_id=wrong)


def test_the_cluster_can_be_asked_and_changed() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        assert (await client.status()).leader == 1
        assert (await client.status(cluster.addresses[1])).node_id == 2
        assert await client.barrier(12, [7], timeout=1) == 12
        assert await client.partition(7).barrier() == 99
        assert (await client.add_node(3, cluster.addresses[2])).voters == [1, 2, 3]
        assert (await client.remove_node(3)).voters == [1, 2]
        await client.transfer_leader(2)
        assert (await client.status()).leader == 2
        await filled(client, 2)
        assert [info.next_sequence for info in await client.partitions()] == [2]

    played(act)


def test_partitions_are_the_leaders_or_those_of_a_node_that_is_named() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        await filled(client, 2)
        cluster.leader = 2  # The client is told so by the one that it asked before.
        assert [info.next_sequence for info in await client.partitions()] == [2]
        cluster.leader = 0
        async with await latewood.connect_async(cluster.addresses, timeout_ms=600) as hasty:
            with pytest.raises(ClusterUnavailable, match="no node leads now"):
                await hasty.partitions()
            with pytest.raises(ClusterUnavailable, match="no node leads now"):
                await hasty.partition(7).info()
        assert [info.next_sequence for info in await client.partitions(address=cluster.addresses[2])] == [2]
        assert [record.sequence async for record in client.partition(7).scan(stale=True)] == [0, 1]
        cluster.first[7] = 1
        with pytest.raises(DataLost) as caught:
            await client.partition(7).read(0, stale=True)
        assert (caught.value.start, caught.value.stop) == (0, 1)

    played(act)


@asynccontextmanager
async def silent_node() -> AsyncIterator[str]:
    """Take connections at the address, and never say a word."""
    taken: list[asyncio.BaseTransport] = []

    class Silent(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            taken.append(transport)

    server = await asyncio.get_running_loop().create_server(Silent, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for transport in taken:
        transport.close()
    await asyncio.sleep(0)  # It is then that they are closed.


def test_nodes_that_hang_hold_no_call_up_beyond_its_time() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        del client
        patience: dict[str, Any] = {"connect_ms": 60_000, "attempt_ms": 60_000}
        async with silent_node() as silent:
            async with await latewood.connect_async([silent], timeout_ms=100, **patience) as hasty:
                partition = hasty.partition(7)
                calls = [partition.append(b"x"), partition.read(0), partition.read(0, stale=True), hasty.partitions()]
                calls += [hasty.status(), hasty.status(silent), hasty.add_node(4, silent)]
                async with asyncio.timeout(30):
                    for call in [*calls, hasty.barrier(1, timeout=0.1)]:
                        with pytest.raises(ClusterUnavailable, match=f"{silent} did not answer"):
                            await call
            seeds = [silent, *cluster.addresses]
            async with await latewood.connect_async(seeds, timeout_ms=2_000, **patience) as other:
                assert (await other.status()).node_id == 1, "those that hang leave time for the others"

    played(act)


@pytest.mark.parametrize("is_hung", [False, True])
def test_a_barrier_ends_with_its_own_time_and_not_with_that_of_other_calls(is_hung: bool) -> None:  # noqa: FBT001 - a parameter
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        cluster.is_behind, cluster.is_hung = True, is_hung
        address = cluster.addresses[1]
        async with asyncio.timeout(30):
            for call in (
                client.barrier(10**9, timeout=0.1),
                client.barrier(10**9, timeout=0.1, address=address),
                client.barrier(timeout=0.1, address=address),
                client.partition(7).barrier(10**9, timeout=0.1),
            ):
                with pytest.raises(WaitExpired):
                    await call
        waits = [one for one in cluster.seen if isinstance(one, Barrier)]
        assert len(waits) >= 4, "each asked; one that has time left may ask again"
        assert all(one.timeout_ms <= 100 for one in waits)

    played(act, timeout_ms=60_000, attempt_ms=60_000)


def test_a_barrier_waits_no_longer_for_a_connection_than_it_has_time() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        del cluster
        async with silent_node() as silent, asyncio.timeout(30):
            with pytest.raises(ClusterUnavailable, match="did not answer in time"):
                await client.barrier(5, timeout=0.1, address=silent)

    played(act, timeout_ms=60_000, connect_ms=60_000)


def test_a_node_that_says_that_a_wait_expired_is_asked_again() -> None:
    """Else the next call may come to one that hangs."""

    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        cluster.is_behind = True
        for _ in range(2):
            with pytest.raises(WaitExpired, match="not applied in time"):
                await client.barrier(5, timeout=0.01)
        assert cluster.connections == 1

    played(act)


def test_a_barrier_that_was_not_answered_leaves_a_leader_that_may_hang() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        cluster.is_hung = True
        with pytest.raises(WaitExpired, match="no answer within"):
            await client.barrier(5, timeout=0.01)
        cluster.is_hung, cluster.leader = False, 2
        asked = cluster.connections
        assert await client.barrier(5, timeout=5) == 5
        assert cluster.connections > asked, "it asked another node"

    played(act, timeout_ms=60_000, attempt_ms=60_000)


def test_a_call_waits_no_longer_for_a_connection_than_it_has_time() -> None:
    """Also if another one, that has more, began to connect."""

    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        del client, cluster
        loop = asyncio.get_running_loop()
        async with silent_node() as silent:
            route = Route([silent], "", None, ClientOptions())
            patient = asyncio.create_task(route.at(silent, loop.time() + 60))
            for ask in (route.at(silent, loop.time() + 0.01), route.leader(loop.time() + 0.01)):
                with pytest.raises(ClusterUnavailable, match="did not answer in time"):
                    await ask
            assert not patient.done()
            patient.cancel()
            await route.close()

    played(act)


def test_a_silent_node_is_named() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        await cluster.stop(2)
        with pytest.raises(ClusterUnavailable, match=cluster.addresses[1]):
            await client.status(cluster.addresses[1])

    played(act)


def test_a_deadline_that_comes_in_the_middle_of_an_attempt_hides_no_reason() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        del client, cluster
        async with silent_node() as silent:
            route = Route([silent], "", None, ClientOptions())
            route._opened(silent, _failed("the certificate is of node 2"))
            with pytest.raises(ClusterUnavailable, match="did not answer in time; before that: the certificate is of"):
                await route.leader(asyncio.get_running_loop().time() + 0.01)
            await route.close()

    played(act)


def _failed(reason: str) -> Any:
    ended = asyncio.get_running_loop().create_future()
    ended.set_exception(ClusterUnavailable(reason))
    return ended
