import json
from pathlib import Path

import pytest

import latewood
from latewood import Owner
from latewood.limits import U64_MAX
from tests.cli.shell import complaint, ok, row, rows, run


def payloads(log: Path) -> list[bytes]:
    with latewood.open(log, mode="r") as opened:
        return [record.payload for record in opened.scan()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"a\n", [b"a"]),
        (b"a\nb", [b"a", b"b"]),
        (b"\n\na\n", [b"", b"", b"a"]),
        (b"a\r\n\xff\x00\n", [b"a\r", b"\xff\x00"]),
    ],
)
def test_each_line_becomes_a_record(tmp_path: Path, text: bytes, expected: list[bytes]) -> None:
    ok("append", tmp_path / "log", stdin=text)
    assert payloads(tmp_path / "log") == expected


def test_lines_that_do_not_fit_one_read_stay_whole(tmp_path: Path) -> None:
    lines = [b"%d" % number * (number % 5000) for number in range(2000)]
    ok("append", tmp_path / "log", stdin=b"\n".join(lines))
    assert payloads(tmp_path / "log") == lines


def test_the_log_is_made_and_said_to_be(tmp_path: Path) -> None:
    first = run("append", tmp_path / "log", stdin="a\nb\n")
    assert first.stderr.splitlines() == [
        f"latewood: made a log at {tmp_path / 'log'}",
        "latewood: 2 appended and durable, sequences 0 to 1",
    ]
    second = run("append", tmp_path / "log", stdin="c\n")
    assert second.stderr.splitlines() == ["latewood: 1 appended and durable, sequences 2 to 2"]


def test_nothing_is_said_with_quiet_but_what_goes_wrong(log: Path) -> None:
    assert run("append", "-q", log, stdin="a\n").stderr == ""


def test_no_input_appends_nothing(log: Path) -> None:
    assert run("append", log, stdin="").stderr == "latewood: nothing was appended\n"


@pytest.mark.parametrize("durable", [[], ["--durable"]])
def test_ack_prints_every_sequence(log: Path, durable: list[str]) -> None:
    assert ok("append", log, "--ack", *durable, stdin="a\nb\nc\n").split() == ["100", "101", "102"]


def test_lines_carry_the_ext_id_that_was_given(log: Path) -> None:
    ok("append", log, "--ext-id", str(U64_MAX), stdin="a\n")
    assert row("tail", log, "-n", "1")["ext_id"] == U64_MAX


def test_json_carries_payload_ext_id_and_time(log: Path) -> None:
    text = (
        '{"payload": "h\\u00e9", "ext_id": 7, "timestamp_ns": 5}\n'
        "\n"
        '{"payload_base64": "/wA=", "sequence": 3}\n'
        '{"payload": ""}'
    )
    ok("append", log, "--json", stdin=text)
    first, second, third = rows("tail", log, "-n", "3")
    assert first == {"sequence": 100, "timestamp_ns": 5, "ext_id": 7, "payload": "hé"}
    assert (second["payload_base64"], second["ext_id"]) == ("/wA=", 0)
    assert second["timestamp_ns"] > 10**18
    assert third["payload"] == ""


def test_what_cat_prints_can_be_appended_again(log: Path, tmp_path: Path) -> None:
    ok("append", log, stdin=b"\xff\xfe\n\x00\n")
    ok("append", tmp_path / "copy", "--json", stdin=ok("cat", log))
    assert ok("cat", tmp_path / "copy") == ok("cat", log)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nonsense", "not a record in JSON"),
        ("[1]", "not a record in JSON: Expected `object`, got `array`"),
        ("{}", "it needs either payload or payload_base64"),
        ('{"payload": "a", "payload_base64": "YQ=="}', "it needs either payload or payload_base64"),
        ('{"payload": 1}', "Expected `str | null`, got `int` - at `$.payload`"),
        ('{"payload_base64": "a"}', "$.payload_base64"),
        ('{"payload": "a", "colour": 1}', "colour"),
        ('{"payload": "a", "ext_id": -1}', "ext_id must be from 0 to 18446744073709551615, not -1"),
        ('{"payload": "a", "ext_id": 18446744073709551616}', "ext_id"),
        ('{"payload": "a", "timestamp_ns": 9223372036854775808}', "timestamp_ns must be from 0 to 9223372036854775807"),
        ('{"payload": "\\ud800"}', "not a record in JSON"),
    ],
)
def test_a_line_that_is_no_record_is_named_and_those_before_it_are_kept(log: Path, line: str, reason: str) -> None:
    good = json.dumps({"payload": "good"})
    result = run("append", log, "--json", "--ack", stdin=f"{good}\n\n{good}\n{line}\n{good}\n")
    assert result.exit_code == 2
    assert result.stdout.split() == ["100", "101"]
    summary, error = result.stderr.splitlines()
    assert summary == "latewood: 2 appended and durable, sequences 100 to 101"
    assert reason in error
    assert error.endswith("; this is line 4; those before it were appended, none after it")
    assert payloads(log)[100:] == [b"good", b"good"]


@pytest.mark.parametrize(("flags", "template"), [([], "{}"), (["--json"], '{{"payload": "{}"}}')])
def test_a_line_that_no_segment_holds_is_named_and_those_before_it_are_kept(
    log: Path, flags: list[str], template: str
) -> None:
    lines = [template.format(payload) for payload in ("small", "large" * 1000, "small")]
    result = run("append", log, *flags, stdin="\n".join(lines))
    assert result.exit_code == 2
    assert "does not fit a segment of this log" in result.stderr
    assert "--segment-bytes" in result.stderr
    assert "this is line 2" in result.stderr
    assert payloads(log)[100:] == [b"small"]


def test_a_line_without_end_is_refused_before_it_fills_the_memory(log: Path) -> None:
    result = run("append", log, stdin=b"x" * (5 << 20))
    assert result.exit_code == 2
    assert "a payload of 1,048,576 bytes does not fit" in result.stderr


def test_a_log_keeps_the_options_that_it_was_made_with(tmp_path: Path) -> None:
    ok("init", tmp_path / "log", "--segment-bytes", "4KiB", "--index-interval", "16")
    ok("append", tmp_path / "log", stdin="line\n" * 500)
    ok("seal", tmp_path / "log")
    found = row("info", tmp_path / "log")
    assert (found["segment_bytes_max"], found["index_interval"]) == (4096, 16)
    assert found["segment_count"] > 4


def test_options_that_are_given_hold_from_the_next_segment_on(log: Path) -> None:
    ok("append", log, "--segment-bytes", "8KiB", "--segment-records", "10", stdin="line\n" * 100)
    found = rows("segments", log)
    assert found[-1]["record_count"] <= 10
    assert row("info", log)["segment_bytes_max"] == 8192


def test_a_segment_size_out_of_bounds_is_a_usage_error(log: Path) -> None:
    line = complaint("append", log, "--segment-bytes", "1", code=2, stdin="")
    assert "segment_bytes_max must be a whole number from" in line


def test_a_size_that_is_none_is_a_usage_error(log: Path) -> None:
    assert "'huge' is not a size" in complaint("append", log, "--segment-bytes", "huge", code=2, stdin="")


def test_init_makes_an_empty_log_once(tmp_path: Path) -> None:
    ok("init", tmp_path / "log")
    assert row("info", tmp_path / "log")["record_count"] == 0
    assert "already" in complaint("init", tmp_path / "log", code=1)
    ok("init", tmp_path / "log", "--if-missing")


def test_a_first_append_after_init_warns_of_nothing(tmp_path: Path) -> None:
    ok("init", tmp_path / "log")
    assert "warning" not in run("append", tmp_path / "log", stdin="a\n").stderr


def test_nothing_is_appended_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is a file" in complaint("append", tmp_path / "file", code=3, stdin="a\n")


@pytest.mark.parametrize("owner", [Owner.STORE, Owner.NODE])
def test_a_log_that_a_store_or_a_node_keeps_is_not_appended_to(tmp_path: Path, owner: Owner) -> None:
    latewood.open(tmp_path / "log", owner=owner).close()
    line = complaint("append", tmp_path / "log", stdin="x\n", code=2)
    assert "is kept by" in line
    assert "append through" in line
