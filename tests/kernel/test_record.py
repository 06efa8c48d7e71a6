"""The Record: an immutable tuple of four, in both twins."""

import copy
import gc
import pickle
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest

FIELDS = (1, 2, 2**64 - 1, b"x")


def record(kernel: ModuleType) -> Any:
    return kernel.Record(*FIELDS)


def test_a_record_has_four_fields(kernel: ModuleType) -> None:
    one = record(kernel)
    assert (one.sequence, one.timestamp_ns, one.ext_id, one.payload) == FIELDS


def test_a_record_is_made_by_position_or_by_name(kernel: ModuleType) -> None:
    named = kernel.Record(payload=b"x", ext_id=2**64 - 1, timestamp_ns=2, sequence=1)
    assert named == record(kernel)
    assert kernel.Record(1, 2, ext_id=2**64 - 1, payload=b"x") == named


def test_a_record_unpacks_and_indexes_like_a_tuple(kernel: ModuleType) -> None:
    one = record(kernel)
    sequence, timestamp_ns, ext_id, payload = one
    assert (sequence, timestamp_ns, ext_id, payload) == FIELDS
    assert tuple(one) == FIELDS
    assert list(reversed(one)) == list(reversed(FIELDS))
    assert len(one) == 4
    assert [one[index] for index in range(-4, 4)] == [FIELDS[index] for index in range(-4, 4)]
    assert one[1:3] == FIELDS[1:3]
    assert b"x" in one
    assert 5 not in one
    assert (one.index(2), one.count(b"x")) == (1, 1)
    for wrong in (4, -5):
        with pytest.raises(IndexError):
            one[wrong]
    with pytest.raises(TypeError):
        one["sequence"]


def test_records_compare_like_tuples(kernel: ModuleType) -> None:
    one = record(kernel)
    assert one == record(kernel)
    assert one == FIELDS
    assert FIELDS == one  # noqa: SIM300 - from both sides
    assert one != kernel.Record(1, 2, 3, b"y")
    assert one != FIELDS[:3]
    assert one != 5
    assert (one == None) is False  # noqa: E711 - a None must not be equal either
    assert one < kernel.Record(2, 0, 0, b"")
    assert one >= (1, 2)
    with pytest.raises(TypeError):
        _ = one < 5


def test_equal_records_hash_alike(kernel: ModuleType) -> None:
    assert hash(record(kernel)) == hash(record(kernel)) == hash(FIELDS)
    assert {record(kernel), record(kernel), FIELDS} == {FIELDS}


def test_a_record_says_what_it_is(kernel: ModuleType) -> None:
    assert repr(kernel.Record(1, 2, 3, b"x")) == "Record(sequence=1, timestamp_ns=2, ext_id=3, payload=b'x')"
    assert str(kernel.Record(0, 0, 0, b"'\n")) == 'Record(sequence=0, timestamp_ns=0, ext_id=0, payload=b"\'\\n")'


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_record_pickles(kernel: ModuleType, protocol: int) -> None:
    back = pickle.loads(pickle.dumps(record(kernel), protocol))  # noqa: S301 - our own bytes
    assert back == record(kernel)
    assert type(back) is kernel.Record


def test_a_record_copies(kernel: ModuleType) -> None:
    assert copy.copy(record(kernel)) == copy.deepcopy(record(kernel)) == FIELDS


@pytest.mark.parametrize("name", ["sequence", "timestamp_ns", "ext_id", "payload", "other"])
def test_a_record_does_not_change(kernel: ModuleType, name: str) -> None:
    one = record(kernel)
    with pytest.raises(AttributeError):
        setattr(one, name, 5)
    with pytest.raises(AttributeError):
        delattr(one, name)
    with pytest.raises(TypeError):
        one[0] = 5
    assert one == FIELDS


def test_a_record_matches_as_a_sequence_and_by_class(kernel: ModuleType) -> None:
    assert isinstance(record(kernel), Sequence)
    match record(kernel):
        case [sequence, _, _, payload]:
            assert (sequence, payload) == (1, b"x")
        case _:
            pytest.fail("no sequence")
    match record(kernel):
        case kernel.Record(1, 2, payload=payload):
            assert payload == b"x"
        case _:
            pytest.fail("no class pattern")


@pytest.mark.parametrize("arguments", [(), FIELDS[:3], (*FIELDS, 5)])
def test_a_record_takes_four_arguments(kernel: ModuleType, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        kernel.Record(*arguments)
    with pytest.raises(TypeError):
        kernel.Record(*FIELDS[:3], wrong=b"x")


def test_the_native_record_checks_its_fields(twins: tuple[ModuleType, ModuleType]) -> None:
    native, _ = twins
    with pytest.raises(TypeError):
        native.Record(1, 2, 3, "text")
    with pytest.raises(OverflowError):
        native.Record(-1, 2, 3, b"")
    with pytest.raises(OverflowError):
        native.Record(1, 2**64, 3, b"")


def test_the_native_record_costs_the_collector_nothing(twins: tuple[ModuleType, ModuleType]) -> None:
    native, _ = twins
    assert not gc.is_tracked(record(native))


def test_a_record_holds_its_payload_and_lets_it_go(kernel: ModuleType) -> None:
    payload = bytes(bytearray(b"counted"))
    before = sys.getrefcount(payload)
    records = [kernel.Record(1, 2, 3, payload) for _ in range(100)]
    assert sys.getrefcount(payload) == before + 100
    assert all(one.payload is payload for one in records)
    assert {hash(one) for one in records} == {hash(tuple(records[0]))}
    assert all(one == records[0] and list(one)[3] is payload for one in records)
    records.clear()
    assert sys.getrefcount(payload) == before


def test_the_type_is_not_lost_when_its_records_are(kernel: ModuleType) -> None:
    kind = kernel.Record
    before = sys.getrefcount(kind)
    records = [record(kernel) for _ in range(100)]
    records.clear()
    gc.collect()
    after = sys.getrefcount(kind)
    assert after == before
