"""Which commands share an entry."""

from hypothesis import given
from hypothesis import strategies as st

from latewood.format.entry import COMMAND_SIZE, Action, Command, encode_command
from latewood.replica.bundle import ENTRY_BYTES_MAX, ENTRY_COMMANDS_MAX, bundles

END = encode_command(Command(1, 0, (), action=Action.TEAR_DOWN))


@given(st.lists(st.one_of(st.integers(0, 2 * ENTRY_BYTES_MAX), st.integers(0, 100), st.none()), max_size=30))
def test_commands_keep_their_order_and_entries_their_bounds(sizes: list[int | None]) -> None:
    commands = [END if size is None else encode_command(Command(1, 1, [bytes(size)])) for size in sizes]
    found = bundles(commands, [1] * len(commands))
    assert [at for one in found for at in one] == list(range(len(commands)))
    for one in found:
        taken = [commands[at] for at in one]
        assert len(taken) == 1 or sum(map(len, taken)) <= ENTRY_BYTES_MAX
        assert END not in taken or taken == [END]


def test_small_commands_share_an_entry_up_to_a_bound() -> None:
    small = encode_command(Command(1, 1, [b"x"]))
    assert len(small) > COMMAND_SIZE
    assert bundles([small] * 10, [1] * 10) == [range(10)]
    assert bundles([small] * (ENTRY_COMMANDS_MAX + 1), [1] * (ENTRY_COMMANDS_MAX + 1)) == [
        range(ENTRY_COMMANDS_MAX),
        range(ENTRY_COMMANDS_MAX, ENTRY_COMMANDS_MAX + 1),
    ]
    assert bundles([], []) == []


def test_proposals_of_several_commands_count_as_so_many() -> None:
    half = ENTRY_COMMANDS_MAX // 2
    assert bundles([b"x"] * 4, [half, half, 1, half]) == [range(2), range(2, 4)]
    assert bundles([b"x"] * 2, [2 * ENTRY_COMMANDS_MAX, 1]) == [range(1), range(1, 2)], "one that is larger is alone"
