"""Appends of which nobody knows how they ended: what is said of them, and how the client finds out."""

import asyncio

import pytest

import latewood
from latewood.errors import (
    OutcomeForgotten,
    OutcomeUnknown,
    UsageError,
)
from latewood.replica.client.asynchronous import AsyncClient
from latewood.replica.client.parts import SentPart
from latewood.replica.requests import REQUEST_WINDOW, TearDown
from tests.replica.fake_cluster import FakeCluster, Fault
from tests.replica.test_client import FOREVER, played


def test_an_unknown_outcome_of_one_part_is_resolved() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        calls = [client.partition(number).append(b"x") for number in range(3)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(one) for one in found] == [int, OutcomeUnknown, int]
        cluster.faults = iter(())
        assert isinstance(found[1], OutcomeUnknown)
        assert await client.resolve(found[1]) == [0]
        assert cluster.records == {0: [b"x"], 1: [b"x"], 2: [b"x"]}

    played(act, [Fault.FINE, Fault.UNSURE_DONE, Fault.FINE, *[Fault.UNSURE] * 10_000], timeout_ms=80)


def test_an_outcome_that_stays_unknown_can_be_resolved() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        with pytest.raises(OutcomeUnknown, match=r"may have been done: `client\.resolve\(error\)`") as caught:
            await client.partition(7).append(b"a")
        assert cluster.records[7] == [b"a"]
        with pytest.raises(OutcomeUnknown) as still:
            await client.resolve(caught.value)
        assert "nothing was done" not in str(still.value)
        cluster.faults = iter(())
        assert await client.resolve(caught.value) == [0]
        assert await client.partition(7).append(b"b") == 1
        assert cluster.records[7] == [b"a", b"b"]

    played(act, FOREVER, timeout_ms=80)


def test_a_batch_that_ended_half_way_is_brought_to_its_end() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        payloads = [b"%d" % number + bytes(60) for number in range(6)]
        with pytest.raises(OutcomeUnknown, match="2 of 6 records are known to be written") as caught:
            await client.partition(7).append_many(payloads)
        cluster.faults = iter(())
        sequences = await client.resolve(caught.value)
        assert [cluster.records[7][sequence] for sequence in sequences] == payloads
        assert cluster.records[7] == payloads

    played(act, [Fault.FINE, *FOREVER], timeout_ms=80, batch_bytes_max=130)


def test_what_is_too_old_is_not_done_again() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        with pytest.raises(OutcomeUnknown) as caught:
            await client.partition(7).append(b"a")
        cluster.faults = iter(())
        for _ in range(REQUEST_WINDOW + 1):
            await client.partition(7).append(b"x")
        with pytest.raises(
            OutcomeForgotten, match=r"too old; look for the records with `partition\.scan`"
        ) as forgotten:
            await client.resolve(caught.value)
        assert "resolve" not in str(forgotten.value)
        with pytest.raises(OutcomeForgotten):
            await client.resolve(forgotten.value)
        assert cluster.records[7].count(b"a") == 1

    played(act, FOREVER, timeout_ms=80)


def test_what_is_too_long_ago_is_not_sent_again() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        with pytest.raises(OutcomeUnknown) as caught:
            await client.partition(7).append(b"a")
        cluster.faults, count = iter(()), len(cluster.seen)
        (part,) = caught.value.parts
        assert isinstance(part, SentPart)
        with pytest.raises(OutcomeForgotten, match=r"too long ago.*look for the records"):
            await client.resolve(OutcomeUnknown(caught.value.reason, (part._replace(until=0.0),)))
        assert len(cluster.seen) == count

    played(act, FOREVER, timeout_ms=80)


def test_only_its_own_client_resolves_an_outcome() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        with pytest.raises(OutcomeUnknown) as caught:
            await client.partition(7).append(b"a")
        async with await latewood.connect_async(cluster.addresses) as other:
            with pytest.raises(UsageError, match="of this very client"):
                await other.resolve(caught.value)
        with pytest.raises(UsageError):
            await client.resolve(OutcomeUnknown("something else"))

    played(act, FOREVER, timeout_ms=80)


def test_a_doubt_outlives_a_limit_that_is_reached_later() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        with pytest.raises(OutcomeUnknown):
            await client.partition(7).append(b"a")
        assert cluster.records[7] == [b"a"]

    played(act, [Fault.LOSE, *[Fault.FULL] * 10_000], timeout_ms=60)


def test_a_teardown_is_not_repeated_in_doubt() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        await client.partition(7).append(b"a")
        with pytest.raises(OutcomeUnknown, match="look before you repeat"):
            await client.tear_down(7)
        assert sum(isinstance(one, TearDown) for one in cluster.seen) == 1

    played(act, [Fault.FINE, Fault.LOSE])
