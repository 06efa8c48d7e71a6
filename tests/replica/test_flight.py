"""A message on the way: each request in it ends once, whatever comes back."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from latewood.replica.client.batch import Batch
from latewood.replica.client.flight import Flight
from latewood.replica.client.options import ClientOptions
from latewood.replica.replies import AppendedGroup


class Heard:
    """Who is told of ends: the numbers of requests, in order."""

    def __init__(self) -> None:
        self.done: list[tuple[int, int]] = []

    def carried_out(self, done: Sequence[tuple[Batch, int]]) -> None:
        self.done += [(batch.number, sequence) for batch, sequence in done]

    def answered(self, batch: Batch, outcome: Any, asked: str) -> None:
        raise AssertionError((batch.number, outcome, asked))


class Way:
    """A connection that keeps what was sent, and whom to tell."""

    address = "somewhere"

    def post(self, request: Any, take: Any) -> None:
        self.request, self.take = request, take


def batch(number: int) -> Batch:
    own = Batch(cast("Any", SimpleNamespace(partition=10 * number)), 1e12, [b"x"], 1, [])
    own.number = number
    return own


def test_requests_are_answered_as_their_answers_come() -> None:
    async def act() -> None:
        way, heard = Way(), Heard()
        Flight(cast("Any", way), [batch(1), batch(2), batch(3)], ClientOptions(), heard).begin(b"c" * 16)
        assert (way.request.partitions, way.request.request_ids, way.request.counts) == ([10, 20, 30], [1, 2, 3], [])
        assert not way.take(AppendedGroup(1, [], [2, 0], [7, 5]))
        assert not way.take(AppendedGroup(1, [], [2], [8])), "one that was answered before"
        assert way.take(AppendedGroup(1, [], [1], [6]))
        assert heard.done == [(3, 7), (1, 5), (2, 6)]

    asyncio.run(act())


def test_a_place_without_a_sequence_is_no_answer() -> None:
    async def act() -> None:
        way, heard = Way(), Heard()
        Flight(cast("Any", way), [batch(1), batch(2)], ClientOptions(), heard).begin(b"c" * 16)
        assert not way.take(AppendedGroup(1, [], [0, 1], [7]))
        assert way.take(AppendedGroup(1, [], [1], [8]))
        assert heard.done == [(1, 7), (2, 8)]

    asyncio.run(act())
