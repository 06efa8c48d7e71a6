"""Answers: a repetition is recognized, on every node alike, and what is forgotten is refused, never done twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.errors import CorruptError
from latewood.format.entry import Command, encode_command
from latewood.replica.answers import CLIENT_SILENT_NS, CLIENTS_MAX, AnswerBook, request_name
from latewood.replica.requests import REQUEST_MAX, REQUEST_WINDOW

pytestmark = pytest.mark.needs("native")

CLIENT = b"c" * 16


def entries(
    *requests: tuple[int, int], client: bytes = CLIENT, partition: int = 7, start: int = 1
) -> list[tuple[int, Command]]:
    """Commands of requests, each (number, records), one after another, the records of the first one by one."""
    found: list[tuple[int, Command]] = []
    index = start
    for request_id, count in requests:
        name = request_name(client, request_id)
        for records in [1] * count if request_id == requests[0][0] else [count]:
            found.append((index, Command(partition, index, [b""] * records, 5, name)))
            index += records
    return found


def test_a_request_is_found_with_its_records() -> None:
    book = AnswerBook()
    book.note(entries((1, 2), (2, 1), (3, 3)))
    assert [book.find(7, CLIENT, number) for number in (1, 2, 3, 4)] == [[1, 2], [3], [4, 5, 6], []]
    assert book.find(8, CLIENT, 1) == []
    assert book.find(7, b"d" * 16, 1) == []


def test_what_a_broken_request_left_is_found_and_the_rest_adds_to_it() -> None:
    book = AnswerBook()
    book.note(entries((1, 2), (2, 1)))
    book.note([(9, Command(7, 9, [b""], 5, request_name(CLIENT, 1)))])
    assert book.find(7, CLIENT, 1) == [1, 2, 9]


def test_beyond_the_window_nobody_can_tell() -> None:
    book = AnswerBook()
    book.note(entries(*((number, 1) for number in range(1, REQUEST_WINDOW + 2))))
    assert book.find(7, CLIENT, 1) is None
    assert book.find(7, CLIENT, 2) == [2]
    book.note(entries((1, 1), start=5_000))
    assert book.find(7, CLIENT, 1) is None


def test_an_entry_that_a_snapshot_told_of_is_not_noted_again() -> None:
    told = AnswerBook()
    told.note(entries((1, 2)))
    book = AnswerBook(through=2)
    book.restore(7, [told.encode(7)])
    book.note(entries((1, 2), (2, 1)))
    assert [book.find(7, CLIENT, number) for number in (1, 2)] == [[1, 2], [3]]


def test_a_partition_that_was_torn_down_knows_nothing() -> None:
    book = AnswerBook()
    book.note(entries((1, 1)))
    book.forget(7, 2)
    assert book.find(7, CLIENT, 1) == []


def test_silent_clients_are_forgotten_and_a_full_table_takes_nobody_who_would_push_one_out() -> None:
    book = AnswerBook()

    def note(client: bytes, index: int, timestamp_ns: int) -> None:
        book.note([(index, Command(7, index, [b""], timestamp_ns, request_name(client, 1)))])

    for number in range(CLIENTS_MAX):
        note(number.to_bytes(16, "big"), number + 1, 10)
    assert book.is_full(7, CLIENT, 10 + CLIENT_SILENT_NS)
    assert not book.is_full(7, bytes(16), 10)
    assert not book.is_full(7, CLIENT, 11 + CLIENT_SILENT_NS)
    assert not book.is_full(8, CLIENT, 10)
    note(CLIENT, 5_000, 11 + CLIENT_SILENT_NS)
    assert book.client_count(7) == 1
    assert book.knows(7, CLIENT)


def test_a_partition_that_knows_nobody_has_room_for_so_many() -> None:
    book = AnswerBook()
    assert not book.is_full(7, CLIENT, 10, CLIENTS_MAX - 1)
    assert book.is_full(7, CLIENT, 10, CLIENTS_MAX)


def test_the_highest_number_is_a_number_as_others() -> None:
    book = AnswerBook()
    book.note(entries((REQUEST_MAX, 1)))
    assert book.find(7, CLIENT, REQUEST_MAX) == [1]
    assert book.find(7, CLIENT, REQUEST_MAX - REQUEST_WINDOW) is None
    restored = AnswerBook()
    restored.restore(7, [book.encode(7)])
    assert restored.find(7, CLIENT, REQUEST_MAX) == [1]


def test_what_is_no_table_of_answers_is_damage() -> None:
    for raw in (b"\xc1", b"\x91\x94\xc4\x00\x01\x02\x90", b"answers"):
        with pytest.raises(CorruptError, match="partition 7"):
            AnswerBook().restore(7, [raw])


def test_the_client_that_was_silent_longest_goes_first() -> None:
    book = AnswerBook()
    clients = [number.to_bytes(16, "big") for number in range(CLIENTS_MAX + 1)]
    for index, client in enumerate([*clients[:-1], clients[0], clients[-1]]):
        book.note([(index + 1, Command(7, index + 1, [b""], 10, request_name(client, index + 1)))])
    assert [book.knows(7, client) for client in clients[:3]] == [True, False, True]


def test_a_request_begins_once_and_only_of_a_client_that_is_known() -> None:
    book = AnswerBook()
    assert not book.begin(7, CLIENT, 1)
    book.note(entries((1, 1)))
    assert [book.begin(7, CLIENT, number) for number in (1, 3, 2, 3, 4)] == [False, True, False, False, True]
    assert not book.begin(8, CLIENT, 5)
    book.note(entries((9, 1), start=20))
    assert not book.begin(7, CLIENT, 8)


@given(
    st.lists(st.tuples(st.sampled_from([b"a" * 16, b"b" * 16]), st.integers(1, 2_000), st.integers(1, 4)), max_size=60),
    st.integers(1, 30),
)
def test_it_is_the_same_however_the_entries_are_cut_and_wherever_a_snapshot_stands(
    requests: list[tuple[bytes, int, int]], cut: int
) -> None:
    everything: list[tuple[int, Command]] = []
    for client, number, count in requests:
        start = everything[-1][1].last_index + 1 if everything else 1
        everything += entries((0, 0), (number, count), client=client, start=start)
    whole, piecewise = AnswerBook(), AnswerBook()
    whole.note(everything)
    for at in range(0, len(everything), cut):
        piecewise.note(everything[at : at + cut])
    restored = AnswerBook(everything[:cut][-1][0] if everything else 0)
    before = AnswerBook()
    before.note(everything[:cut])
    restored.restore(7, [before.encode(7)] if everything else [])
    restored.note(everything)
    by_entry = AnswerBook()
    for global_index, command in everything:
        by_entry.note_entry(global_index, encode_command(command))
    assert whole.encode(7) == piecewise.encode(7) == restored.encode(7) == by_entry.encode(7)


@given(
    st.lists(
        st.tuples(st.sampled_from([b"a" * 16, b"b" * 16]), st.integers(1, 2 * REQUEST_WINDOW), st.integers(1, 3)),
        max_size=80,
    )
)
def test_it_remembers_what_a_list_of_all_would(requests: list[tuple[bytes, int, int]]) -> None:
    """As long as nobody is silent: of each client its requests within the window of the highest when they came."""
    book, highest = AnswerBook(), dict[bytes, int]()
    known: dict[tuple[bytes, int], list[int]] = {}
    index = 1
    for client, number, count in requests:
        book.note([(index, Command(7, index, [b""] * count, 5, request_name(client, number)))])
        if number > highest.get(client, 0) - REQUEST_WINDOW:
            known.setdefault((client, number), []).extend(range(index, index + count))
        highest[client] = max(number, highest.get(client, 0))
        index += count + number % 2  # Now and then neighbours, now and then not.
    for (client, number), indices in known.items():
        is_old = number <= highest[client] - REQUEST_WINDOW
        assert book.find(7, client, number) == (None if is_old else indices)
