"""The client against nodes that drop, delay, repeat and refuse: every record exactly once, every error a true one."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import latewood
from latewood.errors import (
    ClosedError,
    ClusterUnavailable,
    OutcomeUnknown,
    Overloaded,
    RecordTooLarge,
)
from latewood.replica.client.asynchronous import AsyncClient
from latewood.replica.client.flight import Flight
from latewood.replica.client.link import Link
from latewood.replica.client.verdict import Lost
from latewood.replica.replies import AppendedGroup
from latewood.replica.requests import REQUEST_WINDOW, Append, AppendGroup
from tests.replica.fake_cluster import PAYLOAD_BYTES_MAX, FakeCluster, Fault

T = TypeVar("T")
HASTY: Final[dict[str, Any]] = {"pause_first_ms": 1, "pause_max_ms": 2, "attempt_ms": 100}
FOREVER: Final = [Fault.LOSE] * 10_000


def played(
    act: Callable[[AsyncClient, FakeCluster], Awaitable[T]],
    faults: Sequence[Fault] = (),
    *,
    forgetful: bool = False,
    **options: Any,
) -> T:
    """Run `act` with a client and nodes that suffer these faults."""

    async def play() -> T:
        async with FakeCluster(faults, forgetful=forgetful) as cluster:
            client = await latewood.connect_async(cluster.addresses, **{**HASTY, **options})
            async with client:
                return await act(client, cluster)

    return asyncio.run(play())


# -- exactly once -----------------------------------------------------------------------------------------


async def write_all(
    client: AsyncClient, cluster: FakeCluster, calls: Sequence[int], width: int, partitions: int = 1
) -> None:
    """Append batches of these sizes, so many at a time; then see that each record is there once, and where it said."""
    numbers = iter(range(10_000))
    batches = [[b"%d" % next(numbers) for _ in range(size)] for size in calls]
    gate = asyncio.Semaphore(width)

    async def one(number: int, payloads: list[bytes]) -> list[int]:
        async with gate:
            partition = client.partition(7 + number % partitions)
            try:
                if len(payloads) == 1:
                    return [await partition.append(payloads[0])]
                return await partition.append_many(payloads)
            except OutcomeUnknown as unknown:
                cluster.faults = iter(())
                return await client.resolve(unknown)

    found = await asyncio.gather(*(one(number, payloads) for number, payloads in enumerate(batches)))
    for number, (payloads, sequences) in enumerate(zip(batches, found, strict=True)):
        records = cluster.records[7 + number % partitions]
        assert [records[sequence] for sequence in sequences] == payloads
        assert sequences == sorted(sequences)
    every = [record for records in cluster.records.values() for record in records]
    assert Counter(every) == Counter(payload for payloads in batches for payload in payloads)
    assert client.room.taken == 0
    assert cluster.spread < REQUEST_WINDOW


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    faults=st.lists(st.sampled_from([fault for fault in Fault if fault is not Fault.MUTE]), max_size=25),
    calls=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    width=st.integers(1, 12),
    pipeline=st.sampled_from([1, 2, 64]),
    batch=st.sampled_from([1, 4, 256]),
    batch_bytes=st.sampled_from([4, 1 << 20]),
    partitions=st.sampled_from([1, 2, 12]),
)
def test_whatever_happens_every_record_is_there_once(
    faults: list[Fault], calls: list[int], width: int, pipeline: int, batch: int, batch_bytes: int, partitions: int
) -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        await write_all(client, cluster, calls, width, partitions)

    played(act, faults, pipeline=pipeline, batch_records_max=batch, batch_bytes_max=batch_bytes)


def test_a_cluster_that_forgets_requests_is_found_out() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        await write_all(client, cluster, [1, 2, 3], 2)

    with pytest.raises(AssertionError):
        played(act, [Fault.LOSE], forgetful=True)


def numbered_anew(request: Any, number: int) -> Any:
    if isinstance(request, AppendGroup):
        return msgspec.structs.replace(request, request_ids=[number] * len(request.partitions))
    return msgspec.structs.replace(request, request_id=number) if isinstance(request, Append) else request


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_client_that_numbers_every_attempt_anew_is_found_out(
    partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    post, numbers = Link.post, iter(range(1, 1_000))
    monkeypatch.setattr(
        Link, "post", lambda self, request, take: post(self, numbered_anew(request, next(numbers)), take)
    )

    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        await write_all(client, cluster, [1, 1, 1], 3, partitions)

    with pytest.raises(AssertionError):
        played(act, [Fault.UNSURE_DONE])


def test_a_client_that_counts_a_lost_part_as_done_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Flight._take

    def believing(self: Flight, outcome: Any) -> bool:
        if isinstance(outcome, Lost):
            outcome = AppendedGroup(0, [], list(range(len(self._batches))), [0] * len(self._batches))
        return take(self, outcome)

    monkeypatch.setattr(Flight, "_take", believing)

    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        await write_all(client, cluster, [1, 1, 1], 3, 3)

    with pytest.raises((AssertionError, KeyError)):
        played(act, [Fault.FINE, Fault.DROP])


def test_a_client_that_takes_an_answer_for_that_of_another_part_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    landed = Flight._landed
    monkeypatch.setattr(Flight, "_landed", lambda self, place: landed(self, len(self._batches) - 1 - place))

    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        await client.partition(7).append(b"before")  # so that the sequences of the partitions differ
        await asyncio.gather(*(client.partition(number).append(b"x") for number in (7, 8)))
        assert cluster.records == {7: [b"before", b"x"], 8: [b"x"]}
        assert await asyncio.gather(*(client.partition(number).append(b"y") for number in (7, 8))) == [2, 1]

    with pytest.raises(AssertionError):
        played(act)


@pytest.mark.parametrize("fault", Fault)
def test_each_fault_alone_is_overcome(fault: Fault) -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        assert await client.partition(7).append(b"a") == 0
        assert await client.partition(7).append_many([b"b", b"c"]) == [1, 2]
        assert cluster.records == {7: [b"a", b"b", b"c"]}

    played(act, [fault, Fault.FINE, fault])


def test_one_request_at_a_time_keeps_the_order_of_calls() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        payloads = [b"%d" % number for number in range(40)]
        await asyncio.gather(*(client.partition(7).append(payload) for payload in payloads))
        assert cluster.records[7] == payloads

    faults = [Fault.DROP, Fault.LATE, Fault.FULL, Fault.LOSE, Fault.MOVED, Fault.UNSURE] * 2
    played(act, faults, pipeline=1, batch_records_max=4)


# -- groups -----------------------------------------------------------------------------------------------


def test_requests_to_many_partitions_travel_together() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        found = await asyncio.gather(*(client.partition(number).append(b"%d" % number) for number in range(100)))
        assert found == [0] * 100
        groups = [one for one in cluster.seen if isinstance(one, AppendGroup)]
        assert not any(isinstance(one, Append) for one in cluster.seen)
        assert [len(group.partitions) for group in groups] == [64, 36]
        assert {number for group in groups for number in group.request_ids} == {1}
        assert cluster.records == {number: [b"%d" % number] for number in range(100)}

    played(act, batch_records_max=64)


@pytest.mark.parametrize("fault", Fault)
def test_each_fault_of_one_part_is_overcome(fault: Fault) -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        for expected in range(2):
            found = await asyncio.gather(*(client.partition(number).append(b"x") for number in range(4)))
            assert found == [expected] * 4
        assert cluster.records == {number: [b"x", b"x"] for number in range(4)}

    played(act, [Fault.FINE, fault, Fault.FINE, Fault.FINE, Fault.FINE, fault])


def test_a_part_without_answer_holds_up_no_other() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        calls = [asyncio.create_task(client.partition(number).append(b"x")) for number in range(4)]
        done, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert waiting == {calls[1]}
        assert [call.result() for call in done] == [0, 0, 0]
        assert await client.partition(2).append(b"y") == 1
        assert not calls[1].done()
        await cluster.stop(1)
        cluster.leader = 2
        assert await calls[1] == 0
        assert cluster.records[1] == [b"x"]

    played(act, [Fault.FINE, Fault.MUTE], attempt_ms=60_000, timeout_ms=120_000)


def test_the_deadline_of_one_part_does_not_break_the_connection_of_others() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        early, late = client.batcher(7), client.batcher(8)
        first, second = early.put(b"a", 0), late.put(b"b", 0)
        assert early._filling is not None
        early._filling.deadline = asyncio.get_running_loop().time() + 0.05
        with pytest.raises(OutcomeUnknown) as caught:
            await first
        assert not second.done()
        assert cluster.connections == 1
        assert await client.resolve(caught.value) == [0]
        assert not second.done()
        assert {conversation.number for conversation in cluster.open} >= {1}
        await cluster.stop(1)
        cluster.leader = 2
        assert await second == 0
        assert cluster.records == {7: [b"a"], 8: [b"b"]}

    played(act, [Fault.MUTE, Fault.MUTE], attempt_ms=60_000, timeout_ms=120_000)


# -- batches ----------------------------------------------------------------------------------------------


def test_calls_that_come_together_travel_together() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        await asyncio.gather(*(client.partition(7).append(b"%d" % number) for number in range(100)))
        requests = [one for one in cluster.seen if isinstance(one, Append)]
        assert [len(request.payloads) for request in requests] == [64, 36]
        assert [request.request_id for request in requests] == [1, 2]

    played(act, batch_records_max=64)


def test_a_batch_has_a_bound_of_bytes() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        await client.partition(7).append_many([bytes(600)] * 4 + [bytes(5_000), b"x"])
        await asyncio.gather(*(client.partition(7).append(bytes(400)) for _ in range(3)))
        requests = [one for one in cluster.seen if isinstance(one, Append)]
        assert [len(request.payloads) for request in requests] == [1, 1, 1, 1, 1, 1, 2, 1]

    played(act, batch_bytes_max=1_000)


def test_numbers_never_run_further_ahead_than_nodes_remember() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        stuck = asyncio.create_task(client.partition(7).append(b"stuck"))
        await asyncio.sleep(0)
        rest = [client.partition(7).append(b"%d" % number) for number in range(2 * REQUEST_WINDOW)]
        await asyncio.gather(stuck, *rest)
        assert len(set(cluster.records[7])) == len(cluster.records[7]) == 2 * REQUEST_WINDOW + 1
        assert cluster.spread < REQUEST_WINDOW

    played(act, [Fault.MUTE], batch_records_max=1, attempt_ms=300)


def test_a_bad_record_fails_alone() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        calls = [client.partition(7).append(bytes(size)) for size in (1, PAYLOAD_BYTES_MAX + 1, 2)]
        first, bad, last = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(bad, RecordTooLarge)
        assert [first, last] == [0, 1]
        assert [len(one) for one in cluster.records[7]] == [1, 2]
        assert client.room.taken == 0

    played(act, batch_bytes_max=8 << 20)


def test_what_waits_is_bounded_and_all_of_it_arrives() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        await asyncio.gather(*(client.partition(7).append(bytes(50_000)) for _ in range(20)))
        assert len(cluster.records[7]) == 20
        assert client.room.taken == 0

    played(act, queued_bytes_max=100_000)


def test_a_call_that_is_broken_off_gives_its_room_back() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        calls = [asyncio.create_task(client.partition(7).append(bytes(50_000))) for _ in range(6)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(one, int) for one in done) == 3
        assert await client.partition(7).append(b"x") >= 3
        assert client.room.taken == 0
        assert cluster.records[7][-1] == b"x"

    played(act, queued_bytes_max=100_000)


def test_a_call_that_is_broken_off_before_it_is_sent_never_is() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        partition = client.partition(7)
        calls: list[asyncio.Task[Any]] = [
            asyncio.create_task(call)
            for call in (
                partition.append(b"gone"),
                partition.append(b"a"),
                partition.append_many([b"b", b"c"]),
                partition.append(b"gone"),
                partition.append(b"d"),
            )
        ]
        await asyncio.sleep(0)  # They wait to be sent, in one request.
        calls[0].cancel()
        calls[3].cancel()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert [done[1], done[2], done[4]] == [0, [1, 2], 3]
        assert cluster.records[7] == [b"a", b"b", b"c", b"d"]
        assert client.room.taken == 0

    played(act)


# -- errors -----------------------------------------------------------------------------------------------


def test_nothing_is_written_where_nobody_is() -> None:
    async def act() -> None:
        async with await latewood.connect_async(["127.0.0.1:1"], timeout_ms=60, **HASTY) as client:
            with pytest.raises(ClusterUnavailable, match=r"within 0\.06 s.*127\.0\.0\.1:1.*nothing was done"):
                await client.partition(7).append(b"a")

    asyncio.run(act())


def test_a_limit_that_stays_reached_is_told() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        with pytest.raises(Overloaded, match="partition 7: queued_ops would be 9, at most 8"):
            await client.partition(7).append(b"a")
        assert not cluster.records
        assert client.room.taken == 0

    played(act, [Fault.FULL] * 10_000, timeout_ms=60)


def test_a_foreign_cluster_is_told_at_once() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        del client
        patience = {**HASTY, "attempt_ms": 10_000}
        async with await latewood.connect_async(cluster.addresses, cluster_id="prod", **patience) as other:
            partition = other.partition(7)
            calls = (partition.append(b"x"), partition.read(0), partition.read(0, stale=True), other.status())
            async with asyncio.timeout(5):
                for call in calls:
                    with pytest.raises(ClusterUnavailable, match="this is cluster 'fake', not 'prod'") as caught:
                        await call
                    assert "no answer within" not in str(caught.value)

    played(act)


def test_a_seed_of_another_cluster_does_not_keep_from_the_others() -> None:
    async def act() -> None:
        async with FakeCluster(name="other") as foreign, FakeCluster(name="prod") as cluster:
            seeds = [foreign.addresses[0], "127.0.0.1:1", *cluster.addresses, foreign.addresses[1]]
            async with await latewood.connect_async(seeds, cluster_id="prod", **HASTY) as client:
                assert await client.partition(7).append(b"x") == 0
                assert (await client.partition(7).read(0, stale=True)).payload == b"x"
            assert not foreign.seen
            seeds = [foreign.addresses[0], "127.0.0.1:1"]
            async with await latewood.connect_async(seeds, cluster_id="prod", timeout_ms=60, **HASTY) as client:
                with pytest.raises(ClusterUnavailable, match="no answer within"):
                    await client.partition(7).append(b"x")

    asyncio.run(act())


def test_a_closed_client_says_so() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        del cluster
        await client.close()
        await client.close()
        with pytest.raises(ClosedError):
            await client.partition(7).append(b"x")
        with pytest.raises(ClosedError):
            await client.status()

    played(act)


def test_closing_waits_for_what_was_appended() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        calls = [asyncio.create_task(client.partition(7).append(b"x")) for _ in range(10)]
        await asyncio.sleep(0)
        await client.close()
        assert sorted(await asyncio.gather(*calls)) == list(range(10))
        assert len(cluster.records[7]) == 10

    played(act, [Fault.LOSE, Fault.DROP])
