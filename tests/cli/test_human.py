import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.cli.human import (
    cell,
    format_duration,
    format_size,
    format_time,
    heading,
    parse_time,
    printable,
)
from latewood.settings.units import parse_duration, parse_size

NOW_NS = 1_800_000_000_000_000_000


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("512B", 512),
        ("64K", 64 << 10),
        ("64k", 64 << 10),
        ("64KiB", 64 << 10),
        ("64KB", 64_000),
        ("64 MiB", 64 << 20),
        ("1.5G", 3 << 29),
        ("2TB", 2_000_000_000_000),
        (" 1PiB ", 1 << 50),
    ],
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1e3", "64XB", "64iB", "1,000", "1..5K", "٣"])
def test_what_is_not_a_size_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="64MiB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("250ms", 250),
        ("30s", 30_000),
        ("1.5s", 1500),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("7d", 604_800_000),
        ("1W", 604_800_000),
    ],
)
def test_a_duration_is_read(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "30", "s", "-1s", "1y", "1h30"])
def test_what_is_not_a_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="1h30m"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("now", NOW_NS),
        ("2h", NOW_NS - 7_200 * 10**9),
        ("1970-01-01", 0),
        ("1970-01-02T00:00:00.000001Z", 86_400_000_001_000),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1970-01-01 00:00:01", 10**9),
        ("1794776010738672740", 1_794_776_010_738_672_740),
        ("20000101", 946_684_800 * 10**9),
    ],
)
def test_a_time_is_read(text: str, time_ns: int) -> None:
    assert parse_time(text, NOW_NS) == time_ns


def test_a_duration_longer_than_time_itself_means_the_beginning() -> None:
    assert parse_time("9999w", NOW_NS) == 0


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "12:00"])
def test_what_is_not_a_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="two hours ago"):
        parse_time(text, NOW_NS)


def test_a_time_before_1970_is_refused() -> None:
    with pytest.raises(ValueError, match="before 1970"):
        parse_time("1969-12-31", NOW_NS)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (64 << 20, "64.0 MiB")]
)
def test_a_size_is_written(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0ms"),
        (0.0877, "0.0877ms"),
        (999, "999ms"),
        (1500, "1.5s"),
        (60_000, "1m"),
        (7_500_000, "2h5m"),
        (90_000_000, "1d1h"),
        (86_400_001, "1d"),
    ],
)
def test_a_duration_is_written(milliseconds: float, text: str) -> None:
    assert format_duration(milliseconds) == text


@given(st.integers(0, (1 << 63) - 1))
def test_a_time_that_was_shown_finds_its_record_again(time_ns: int) -> None:
    shown = parse_time(format_time(time_ns), NOW_NS)
    assert shown <= time_ns < shown + 1_000_000


@given(st.integers(0, 1 << 50))
def test_a_size_that_was_shown_is_nearly_the_size(size: int) -> None:
    assert parse_size(format_size(size)) == pytest.approx(size, rel=0.06)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("size_bytes", 2048, "2.0 KiB"),
        ("segment_bytes_max", 2048, "2.0 KiB"),
        ("bytes_checked", 2048, "2.0 KiB"),
        ("sealed_at_ns", 0, "1970-01-01T00:00:00.000Z"),
        ("behind_ms", 1500, "1.5s"),
        ("lag", 2048, "2048"),
        ("is_sound", False, "no"),
        ("deleted", True, "yes"),
        ("problem", None, "-"),
        ("readers", [], "-"),
        ("readers", ["a", "b"], "a, b"),
        ("path", "a\x1b[2Jb", "a\\x1b[2Jb"),
    ],
)
def test_a_cell_is_written_by_the_unit_in_its_name(name: str, value: object, text: str) -> None:
    assert cell(name, value) == text


@pytest.mark.parametrize(
    ("name", "text"), [("size_bytes", "size"), ("created_at_ns", "created at"), ("segment_bytes_max", "segment max")]
)
def test_a_heading_leaves_the_unit_to_the_cells(name: str, text: str) -> None:
    assert heading(name) == text


@given(st.text())
def test_no_text_can_command_the_terminal(text: str) -> None:
    assert printable(text).isprintable()
