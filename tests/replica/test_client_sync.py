"""The client in a thread of its own: the same answers, from any thread."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

import latewood
from latewood.errors import ClosedError, Forked, OutcomeUnknown, UsageError
from latewood.replica.client.synchronous import Client
from tests.forking import in_child
from tests.replica.fake_cluster import FakeCluster, Fault


@contextmanager
def running(faults: list[Fault] | None = None) -> Iterator[FakeCluster]:
    """Nodes in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def begin() -> FakeCluster:
        return await FakeCluster(faults or []).__aenter__()

    try:
        cluster = asyncio.run_coroutine_threadsafe(begin(), loop).result()
        yield cluster
        asyncio.run_coroutine_threadsafe(cluster.__aexit__(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def connected(cluster: FakeCluster, **options: Any) -> Client:
    return latewood.connect(cluster.addresses, pause_first_ms=1, **options)


def test_a_partition_is_a_log() -> None:
    with running([Fault.LOSE, Fault.MOVED]) as cluster, connected(cluster) as client:
        partition = client.partition(7)
        assert partition.append(b"a") == 0
        assert partition.append_many(one for one in (b"b", b"c")) == [1, 2]
        assert partition.read(1).payload == b"b"
        assert [record.payload for record in partition.scan()] == [b"a", b"b", b"c"]
        assert [record.sequence for record in partition.scan(1, 2)] == [1]
        with partition.reader("billing") as reader:
            assert reader.next() is not None
            assert [record.payload for record in reader.poll(1)] == [b"b"]
            reader.commit()
            assert (reader.lag(), reader.sequence, reader.committed_sequence) == (1, 2, 2)
        with partition.reader("billing") as reader:
            assert [record.payload for record in reader] == [b"c"]
            reader.seek(sequence=0)
            assert next(reader.follow()).payload == b"a"
            reader.seek(timestamp=1_002)
            assert reader.sequence == 2
        assert partition.readers() == [("billing", 2, 1)]
        assert partition.find_timestamp(1_001) == 1
        partition.remove_reader("billing")
        assert partition.info().next_sequence == 3
        assert partition.barrier() == 99


def test_the_cluster_can_be_asked_and_changed() -> None:
    with running() as cluster, connected(cluster) as client:
        client.partition(7).append(b"a")
        assert client.status().leader == 1
        assert client.barrier(5) == 5
        assert client.add_node(2, cluster.addresses[1]).voters == [1, 2, 3]
        assert client.remove_node(2).voters == [1, 3]
        client.transfer_leader(3)
        assert client.status(cluster.members[3]).role == "leader"
        client.tear_down(7)
        assert client.partitions() == []


def test_threads_share_requests_and_every_record_is_there_once() -> None:
    with running([Fault.LOSE, Fault.FINE, Fault.DROP]) as cluster, connected(cluster) as client:
        with ThreadPoolExecutor(8) as pool:
            sequences = list(pool.map(client.partition(7).append, (b"%d" % number for number in range(200))))
        assert [cluster.records[7][sequence] for sequence in sequences] == [b"%d" % number for number in range(200)]
        assert len(cluster.records[7]) == 200


def test_an_unknown_outcome_is_resolved() -> None:
    with running([Fault.LOSE] * 1_000) as cluster, connected(cluster, timeout_ms=50) as client:
        with pytest.raises(OutcomeUnknown) as caught:
            client.partition(7).append(b"a")
        cluster.faults = iter(())
        assert client.resolve(caught.value) == [0]
        assert cluster.records[7] == [b"a"]


def test_a_closed_client_says_so() -> None:
    with running() as cluster:
        client = connected(cluster)
        client.close()
        client.close()
        with pytest.raises(ClosedError, match="connect again"):
            client.partition(7).append(b"a")


def test_a_client_that_cannot_be_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(UsageError):
        latewood.connect([])
    assert threading.active_count() == before


# -- fork ---------------------------------------------------------------------------------------------


def refused(client: Client) -> None:
    """Use everything that a child inherited of a client, and close it."""
    partition = client.partition(7)
    for use in (
        lambda: partition.append(b"child"),
        lambda: partition.append_many([b"child"]),
        lambda: partition.read(0),
        lambda: list(partition.scan()),
        lambda: partition.reader("child"),
        client.status,
        client.partitions,
        client.barrier,
    ):
        with pytest.raises(Forked, match="open it again"):
            use()
    with client:
        pass
    client.close()


def test_what_a_child_inherited_of_a_client_refuses_and_its_parent_goes_on() -> None:
    with running() as cluster, connected(cluster) as client:
        partition = client.partition(7)
        partition.append_many([b"a", b"b", b"c"])
        with partition.reader("billing") as reader:
            assert [record.payload for record in reader.poll(1)] == [b"a"]

            def work() -> None:
                refused(client)
                for use in (reader.next, reader.poll, reader.commit, reader.lag, lambda: list(reader)):
                    with pytest.raises(Forked, match="open it again"):
                        use()
                reader.close()

            in_child(work)
            assert [record.payload for record in reader] == [b"b", b"c"]
        assert partition.append(b"d") == 3


def test_a_child_may_connect_itself() -> None:
    with running() as cluster, connected(cluster) as client:
        client.partition(7).append(b"a")

        def work() -> int:
            with connected(cluster) as mine:
                return mine.partition(7).append(b"b")

        assert in_child(work) == 1
        assert client.partition(7).append(b"c") == 2
        assert cluster.records[7] == [b"a", b"b", b"c"]


def test_a_child_that_lets_go_of_a_client_leaves_its_parents_connections_open() -> None:
    """Closing the inherited loop would take the parent's sockets out of the epoll that both share."""
    with running() as cluster:
        held = [connected(cluster)]
        held[0].partition(7).append(b"a")

        def work() -> None:
            held.pop()
            gc.collect()

        in_child(work)
        assert held[0].partition(7).append(b"b") == 1
        held[0].close()


def test_a_client_of_asyncio_that_a_child_inherited_sends_nothing() -> None:
    """Its bytes would come in between those of the parent."""
    with running() as cluster:

        async def use() -> list[bytes]:
            async with await latewood.connect_async(cluster.addresses, pause_first_ms=1) as client:
                partition = client.partition(7)
                await partition.append(b"a")

                async def refused() -> None:
                    for ask in (partition.append(b"x"), client.status(), partition.read(0), client.barrier()):
                        with pytest.raises(Forked, match="open it again"):
                            await ask
                    await client.close()

                # A child has its own loop; the one that it inherited still runs, as far as asyncio knows.
                in_child(lambda: run_anew(refused()))
                await partition.append(b"b")
            return cluster.records[7]

        assert asyncio.run(use()) == [b"a", b"b"]


def run_anew(work: Any) -> None:
    asyncio.events._set_running_loop(None)
    asyncio.run(work)
