"""Groups of requests, taken apart and put together."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from latewood.replica.requests import AppendGroup


class Part(NamedTuple):
    """One request of a group."""

    partition: int
    request_id: int
    payloads: Sequence[bytes]


def group_of(number: int, client_id: bytes, parts: Iterable[Part]) -> AppendGroup:
    """Return requests as one message; as a client does, it says how many payloads each has unless each has one."""
    parts = list(parts)
    counts = [len(part.payloads) for part in parts]
    return AppendGroup(
        number,
        client_id,
        [part.partition for part in parts],
        [part.request_id for part in parts],
        [] if counts == [1] * len(parts) else counts,
        [payload for part in parts for payload in part.payloads],
    )


def parts_of(group: AppendGroup) -> Iterator[Part]:
    """Yield the requests in a message."""
    counts = group.counts or [1] * len(group.partitions)
    bounds = pairwise(accumulate(counts, initial=0))
    for partition, request_id, (start, stop) in zip(group.partitions, group.request_ids, bounds, strict=True):
        yield Part(partition, request_id, group.payloads[start:stop])
