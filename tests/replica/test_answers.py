"""Answers: a repetition is recognized, on every node alike, and what is forgotten is refused, never done twice."""

from hypothesis import given
from hypothesis import strategies as st

from latewood.format.entry import Command
from latewood.replica.answers import CLIENT_SILENT_NS, CLIENTS_MAX, AnswerBook, Answers, request_name
from latewood.replica.requests import REQUEST_WINDOW

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
    assert [book[7].find(CLIENT, number) for number in (1, 2, 3, 4)] == [[1, 2], [3], [4, 5, 6], []]
    assert book[8].find(CLIENT, 1) == []
    assert book[7].find(b"d" * 16, 1) == []


def test_what_a_broken_request_left_is_found_and_the_rest_adds_to_it() -> None:
    book = AnswerBook()
    book.note(entries((1, 2), (2, 1)))
    book.note([(9, Command(7, 9, [b""], 5, request_name(CLIENT, 1)))])
    assert book[7].find(CLIENT, 1) == [1, 2, 9]


def test_beyond_the_window_nobody_can_tell() -> None:
    book = AnswerBook()
    book.note(entries(*((number, 1) for number in range(1, REQUEST_WINDOW + 2))))
    assert book[7].find(CLIENT, 1) is None
    assert book[7].find(CLIENT, 2) == [2]
    book.note(entries((1, 1), start=5_000))
    assert book[7].find(CLIENT, 1) is None


def test_an_entry_that_a_snapshot_told_of_is_not_noted_again() -> None:
    told = AnswerBook()
    told.note(entries((1, 2)))
    book = AnswerBook(through=2)
    book.restore(7, [told[7].encode()])
    book.note(entries((1, 2), (2, 1)))
    assert [book[7].find(CLIENT, number) for number in (1, 2)] == [[1, 2], [3]]


def test_a_partition_that_was_torn_down_knows_nothing() -> None:
    book = AnswerBook()
    book.note(entries((1, 1)))
    book.forget(7, 2)
    assert book[7].find(CLIENT, 1) == []


def test_silent_clients_are_forgotten_and_a_full_table_takes_nobody_who_would_push_one_out() -> None:
    answers = Answers()
    for number in range(CLIENTS_MAX):
        answers.note(number.to_bytes(16, "big"), 1, range(number, number + 1), 10)
    assert answers.is_full(CLIENT, 10 + CLIENT_SILENT_NS)
    assert not answers.is_full(bytes(16), 10)
    assert not answers.is_full(CLIENT, 11 + CLIENT_SILENT_NS)
    answers.note(CLIENT, 1, range(5_000, 5_001), 11 + CLIENT_SILENT_NS)
    assert len(answers) == 1


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
    restored.restore(7, [before[7].encode()] if everything else [])
    restored.note(everything)
    assert whole[7].encode() == piecewise[7].encode() == restored[7].encode()
