"""Options are parsed in any case, and refused with the list of what there is."""

import pytest

from latewood.errors import BadName, UsageError
from latewood.limits import MiB
from latewood.spark.offsets import Bound
from latewood.spark.options import Range, encode_ranges, parse_options


def test_names_come_in_lower_case_and_mean_the_same() -> None:
    options = parse_options({"path": "events", "failondataloss": "FALSE", "MINPARTITIONS": "4", "columns": "a, B"})
    assert (options.fail_on_data_loss, options.partitions_min, options.columns) == (False, 4, ("a", "b"))


def test_an_unknown_option_is_refused_with_a_guess_and_the_list() -> None:
    with pytest.raises(UsageError) as caught:
        parse_options({"path": "events", "startingOfsets": "1"})
    assert "perhaps you meant startingOffsets; the options are view, columns, startingOffsets" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "streaming"), [("reader", False), ("maxOffsetsPerTrigger", False), ("endingOffsets", True), ("view", True)]
)
def test_an_option_of_the_other_kind_of_read_is_refused(name: str, streaming: bool) -> None:  # noqa: FBT001 - a case
    with pytest.raises(UsageError, match=f"^{name} is no option of a (batch|streaming) read; these are "):
        parse_options({"path": "events", name: "1"}, streaming=streaming)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "there is no path"),
        ({"path": "x", "view": "rows"}, "the views are records, segments, chunks, readers, jobs, shards, plan"),
        ({"path": "x", "columns": "a,a"}, "columns must name each column once"),
        ({"path": "x", "minPartitions": "0"}, "minPartitions must be a whole number of at least 1"),
        ({"path": "x", "targetPartitionBytes": "many"}, "targetPartitionBytes must be a size"),
        ({"path": "x", "failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
        ({"path": "x", "ranges": "[1]"}, "ranges must be JSON"),
        ({"path": "x", "startingOffsets": "1", "startingTimestamp": "1"}, "not both"),
    ],
)
def test_a_bad_value_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_options(options)


@pytest.mark.parametrize("name", ["My Reader", "latewood-flush", "latewood-"])
def test_a_readers_name_must_be_one_and_none_of_ours(name: str) -> None:
    with pytest.raises(BadName):
        parse_options({"path": "x", "reader": name})


def test_options_of_both_kinds_of_read_are_refused_before_it_is_known_which_it_is() -> None:
    with pytest.raises(UsageError, match="endingOffsets is of a batch read and reader of a streaming read"):
        parse_options({"path": "x", "endingoffsets": "latest", "reader": "etl"})


@pytest.mark.parametrize(("text", "size"), [("1024", 1024), ("8m", 8 * MiB), ("8 MiB", 8 * MiB), ("1G", 1024 * MiB)])
def test_a_size_may_have_a_unit(text: str, size: int) -> None:
    assert parse_options({"path": "x", "maxBytesPerTrigger": text}).bytes_max == size


def test_ranges_come_back_as_they_were() -> None:
    ranges = [Range("clicks", 0, 10, 20), Range("", 1, 0, 5)]
    assert parse_options({"path": "x", "ranges": encode_ranges(ranges)}).ranges == tuple(ranges)


def test_a_start_that_was_chosen_is_told_from_the_default() -> None:
    assert not parse_options({"path": "x"}).has_start
    chosen = parse_options({"path": "x", "startingTimestamp": "5"})
    assert chosen.has_start
    assert chosen.starting == Bound(timestamp_ns=5_000_000)
