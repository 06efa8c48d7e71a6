"""File names, both ways."""

from pathlib import Path

import pytest

from latewood.errors import BadName
from latewood.limits import SEGMENT_ID_MAX, check_name
from latewood.log.layout import Layout, segment_id_of, segment_path

DAY_NS = 86_400 * 10**9


@pytest.mark.parametrize(
    ("segment_id", "created_ns", "expected"),
    [
        (0, 0, "segments/1970/01/01/000000000.q"),
        (42, 20_514 * DAY_NS, "segments/2026/03/02/000000042.q"),
        (42, 20_515 * DAY_NS - 1, "segments/2026/03/02/000000042.q"),
        (42, 20_515 * DAY_NS, "segments/2026/03/03/000000042.q"),
        (999_999_999, 0, "segments/1970/01/01/999999999.q"),
        (1_000_000_000, 0, "segments/1970/01/01/1000000000.q"),
        (SEGMENT_ID_MAX, 0, "segments/1970/01/01/4294967295.q"),
    ],
)
def test_a_segment_is_named_by_its_day_in_utc_and_its_id(segment_id: int, created_ns: int, expected: str) -> None:
    assert segment_path(segment_id, created_ns) == expected
    assert segment_id_of(Path("q") / expected) == segment_id


@pytest.mark.parametrize(
    "name", ["next.q", "1.q", "00000000.q", "000000001.q.tmp", "000000001", "00000000x.q", "current.sealed"]
)
def test_what_is_not_named_like_a_segment_is_none(name: str) -> None:
    assert segment_id_of(Path(name)) is None


def test_a_path_in_the_manifest_is_relative_to_the_log() -> None:
    layout = Layout(Path("/data/events"))
    absolute = layout.absolute("segments/2026/03/02/000000042.q")
    assert absolute == Path("/data/events/segments/2026/03/02/000000042.q")
    assert layout.relative(absolute) == "segments/2026/03/02/000000042.q"


@pytest.mark.parametrize("name", ["a", "0", "billing", "etl-2_b", "a" * 64])
def test_a_name_of_small_letters_digits_and_dashes_is_taken(name: str) -> None:
    assert check_name(name, "reader") == name


@pytest.mark.parametrize("name", ["", "A", "-a", "_a", "a" * 65, "a.b", "a/b", "..", "a b", "a\n", "\u00e4", "a\0"])
def test_a_name_that_could_not_be_a_file_name_everywhere_is_refused(name: str) -> None:
    with pytest.raises(BadName, match="reader name"):
        check_name(name, "reader")
