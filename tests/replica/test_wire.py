"""Frames and messages: what goes in comes out, however it is cut, and nothing else is taken for a message."""

import contextlib
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latewood.replica import replies, requests
from latewood.replica.replies import NodeProgress, Records, StatusReply, WireRecord
from latewood.replica.requests import GROUP_REQUESTS_MAX, Append, AppendGroup, Hello, WireMessage
from latewood.replica.wire import FRAME_BYTES_MAX, GREETING_BYTES_MAX, FrameBuffer, WireError, encode_frame

KINDS: Final = [
    kind
    for module in (requests, replies)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, WireMessage) and kind.__struct_config__.tag is not None
]


def fed(raw: bytes | bytearray, bytes_max: int = FRAME_BYTES_MAX) -> list[Any]:
    return list(FrameBuffer(bytes_max).feed(bytes(raw)))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_survives_the_journey(kind: Any) -> None:
    @settings(max_examples=20)
    @given(st.from_type(kind))
    def journey(message: Any) -> None:
        with contextlib.suppress(OverflowError):  # Numbers of more than 64 bits are nobody's.
            assert fed(encode_frame(message)) == [message]

    journey()


def test_no_two_kinds_have_one_number() -> None:
    numbers = [kind.__struct_config__.tag for kind in KINDS]
    assert len(set(numbers)) == len(numbers) == 39


@given(st.lists(st.integers(1, 40), min_size=1), st.integers(1, 5))
def test_it_does_not_matter_where_a_stream_is_cut(steps: list[int], count: int) -> None:
    sent = [Append(at, 7, b"c" * 16, at, [b"x" * at]) for at in range(count)]
    raw = b"".join(map(encode_frame, sent))
    buffer, found, at = FrameBuffer(FRAME_BYTES_MAX), list[Any](), 0
    while at < len(raw):
        step = steps[at % len(steps)]
        found += buffer.feed(raw[at : at + step])
        at += step
    assert found == sent


@pytest.mark.parametrize(
    ("count", "is_whole"), [(2, True), (GROUP_REQUESTS_MAX, True), (GROUP_REQUESTS_MAX + 1, False)]
)
def test_a_group_has_a_bounded_number_of_requests(count: int, *, is_whole: bool) -> None:
    assert AppendGroup(1, b"c" * 16, [7] * count, [1] * count, [], [b"x"] * count).is_whole == is_whole


def test_values_in_values_come_back() -> None:
    records = Records(1, [WireRecord(0, 1, 2, b"x")], 0, 1)
    assert fed(encode_frame(records)) == [records]
    nodes = [NodeProgress(1, "voter", "a"), NodeProgress(2, "learner", "b", match=7, is_active=True)]
    status = StatusReply(1, 2, "c", "leader", 1, "a", 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, nodes)
    assert fed(encode_frame(status)) == [status]


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x00\x00\x01\xc1",  # no MessagePack
        b"\x00\x00\x00\x02\x91\x63",  # kind 99
        b"\x00\x00\x00\x02\x91\x20",  # an Append without its fields
        b"\x00\x00\x00\x00",  # nothing at all
        encode_frame(Hello(1, "c", "peer"))[:-1] + b"\xff",
    ],
)
def test_what_is_no_message_is_refused(raw: bytes) -> None:
    with pytest.raises(WireError):
        fed(raw)


def test_a_stranger_cannot_announce_a_large_frame() -> None:
    with pytest.raises(WireError, match="at most 65,536"):
        fed((GREETING_BYTES_MAX + 1).to_bytes(4, "big"), GREETING_BYTES_MAX)


def test_a_frame_has_a_cap() -> None:
    with pytest.raises(WireError, match="a frame has at most"):
        encode_frame(Append(1, 7, b"", 1, [bytes(FRAME_BYTES_MAX)]))
