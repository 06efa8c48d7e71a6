"""Taking an entry of a cluster's parent log apart."""

from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from latewood.format.entry import VERSION, Command, encode_command
from latewood.kernel import pure

u64s = st.integers(0, 2**64 - 1)
records = st.lists(st.binary(max_size=20), max_size=4)
commands = st.builds(Command, u64s, u64s, records, u64s, st.binary(max_size=30), st.sampled_from([1, 2]))
TWO = encode_command(Command(7, 1, [b"", b"abc"], 5, b"name")) + encode_command(Command(2**64 - 1, 9, [b"x"]))


def test_commands_come_back_in_order(kernel: ModuleType) -> None:
    found, end = kernel.split_commands(TWO, VERSION)
    assert found == [(7, 1, [b"", b"abc"], 5, b"name", 1), (2**64 - 1, 9, [b"x"], 0, b"", 1)]
    assert end == len(TWO)


def test_it_stops_before_what_is_no_command(kernel: ModuleType) -> None:
    first = len(TWO) - len(encode_command(Command(2**64 - 1, 9, [b"x"])))
    for length in range(first, len(TWO)):
        assert kernel.split_commands(TWO[:length], VERSION)[1] == first
    assert kernel.split_commands(TWO, VERSION + 1) == ([], 0)
    assert kernel.split_commands(b"", VERSION) == ([], 0)


def test_a_length_beyond_the_command_is_not_believed(kernel: ModuleType) -> None:
    raw = bytearray(encode_command(Command(7, 1, [b"abc"])))
    for place in [*range(4, 8), *range(32, 44)]:
        for changed in (0xFF, raw[place] + 1):
            damaged = bytes(raw[:place]) + bytes([changed]) + bytes(raw[place + 1 :])
            assert kernel.split_commands(damaged, VERSION) == ([], 0), place


@given(st.lists(commands, max_size=4), st.binary(max_size=60), st.integers(0, 400), st.integers(0, 255))
def test_the_twins_find_the_same(
    native_twin: ModuleType, found: list[Command], tail: bytes, place: int, changed: int
) -> None:
    raw = bytearray(b"".join(map(encode_command, found)) + tail)
    if place < len(raw):
        raw[place] = changed
    assert native_twin.split_commands(bytes(raw), VERSION) == pure.split_commands(bytes(raw), VERSION)
