"""Commands as real processes: beside each other, killed, interrupted, and with their pipes closed."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from latewood.cli.errors import ExitCode
from tests.cli.shell import PROGRAM, TIMEOUT_S, complaint, ok, process, row, rows, run
from tests.replica.processes import free_ports

pytestmark = pytest.mark.slow
COMMAND = " ".join(PROGRAM)


def payloads(log: Path) -> list[str]:
    return [record["payload"] for record in rows("cat", log)]


def bash(script: str, log: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in which `latewood` is the program and `$LOG` the log."""
    line = f'latewood() {{ {COMMAND} "$@"; }}; {script}'
    environment = {**os.environ, "LOG": str(log)}
    command = ["bash", "-c", line]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)


# -- a writer and those who follow it ------------------------------------------------------------------


def test_a_line_that_is_typed_is_seen_at_once_elsewhere(log: Path) -> None:
    with process("tail", log, "-f", "-n", "1", "--raw") as tail, process("append", log) as append:
        assert tail.line() == "record 99"
        for line in ("hello", "wörld"):
            append.write(f"{line}\n")
            assert tail.line() == line
        append.write("no newline y")
        append.write("et\n")
        assert tail.line() == "no newline yet"
        assert append.popen.poll() is None


def test_a_line_is_acknowledged_while_the_input_goes_on(log: Path) -> None:
    with process("append", log, "--ack") as append:
        for sequence in range(100, 103):
            append.write("line\n")
            assert append.line() == str(sequence)
        assert row("info", log)["durable_sequence"] == 103
        assert append.end() == 0
        assert append.errors() == ["latewood: 3 appended and durable, sequences 100 to 102"]


def test_nothing_acknowledged_is_lost_by_a_kill_and_whoever_follows_sees_it_all(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ok("init", log, "--segment-bytes", "1KiB")  # A roll now and then is part of it.
    acknowledged: list[str] = []
    written: list[str] = []
    with process("tail", log, "-f", "--raw", "-n", "9999") as tail:
        for number in range(4):
            with process("append", log, "--ack") as append:
                for line in range(60):
                    append.write(f"round {number} line {line}\n")
                acknowledged += append.lines(number * 12 + 1)
                append.popen.kill()
                acknowledged += append.rest()
            kept = payloads(log)
            assert acknowledged == [str(sequence) for sequence in range(len(acknowledged))]
            assert len(kept) >= len(acknowledged)
            assert kept[: len(written)] == written
            assert kept[len(written) :] == [f"round {number} line {line}" for line in range(len(kept) - len(written))]
            written = kept
        ok("append", log, stdin="the end\n")
        assert tail.lines(len(written) + 1) == [*written, "the end"]
    assert row("verify", log, "--deep")["is_sound"]


def test_a_reader_that_is_killed_repeats_but_never_skips(log: Path) -> None:
    with process("tail", log, "-f", "--raw", "--reader", "billing") as tail:
        first = tail.lines(100)
        ok("append", log, stdin="a\n")
        first.append(tail.line())
        tail.popen.kill()
    ok("append", log, stdin="b\n")
    with process("tail", log, "--raw", "--reader", "billing") as tail:
        second = tail.rest()
        assert tail.end() == 0
    assert first == [*(f"record {number}" for number in range(100)), "a"]
    assert second in (["b"], ["a", "b"])
    assert row("readers", "ls", log)["lag"] == 0


def test_a_reader_commits_as_it_prints(log: Path) -> None:
    with process("tail", log, "-f", "--raw", "--reader", "billing") as tail:
        tail.lines(100)
        ok("append", log, stdin="more\n")  # Its record is handed out only once those before it are committed.
        assert tail.line() == "more"
        assert row("readers", "ls", log)["sequence"] >= 100


def test_two_followers_and_two_readers_get_everything(log: Path) -> None:
    names: list[list[str]] = [["-n", "100"], ["-n", "100"], ["--reader", "a"], ["--reader", "b"]]
    with (
        process("tail", log, "-f", "--raw", *names[0]) as one,
        process("tail", log, "-f", "--raw", *names[1]) as two,
        process("tail", log, "-f", "--raw", *names[2]) as three,
        process("tail", log, "-f", "--raw", *names[3]) as four,
    ):
        ok("append", log, stdin="".join(f"line {number}\n" for number in range(300)))
        expected = [f"record {number}" for number in range(100)] + [f"line {number}" for number in range(300)]
        started = one.line()
        assert started in expected
        assert [started, *one.lines(len(expected) - expected.index(started) - 1)] == expected[expected.index(started) :]
        started = two.line()
        assert two.lines(len(expected) - expected.index(started) - 1)[-1] == "line 299"
        assert three.lines(400) == expected
        assert four.lines(400) == expected


# -- locks ---------------------------------------------------------------------------------------------


def test_a_second_writer_is_told_who_the_first_is(log: Path) -> None:
    with process("append", log, "--ack") as append:
        append.write("a\n")
        append.line()
        for command in (["append"], ["seal"], ["cleanup", "--yes"], ["rebuild", "--yes"]):
            line = complaint(*command, log, code=5, stdin="b\n")
            assert line.startswith(f"{log} is being written by process {append.popen.pid}; ")
        for command in (["cat"], ["tail"], ["info"], ["segments"], ["verify"], ["readers", "ls"]):
            ok(*command, log)


def test_a_reader_that_is_followed_elsewhere_names_the_process(log: Path) -> None:
    with process("tail", log, "-f", "--raw", "--reader", "billing") as tail:
        tail.line()
        line = complaint("tail", log, "--reader", "billing", code=5)
        assert f"process {tail.popen.pid}" in line


# -- interruptions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [[], ["--reader", "billing"]], ids=str)
def test_ctrl_c_ends_a_follower_quietly(log: Path, flags: list[str]) -> None:
    with process("tail", log, "-f", "--raw", *flags) as tail:
        while tail.line() != "record 99":
            pass
        tail.popen.send_signal(signal.SIGINT)
        assert tail.end() == 130
        assert tail.errors() == []


def test_ctrl_c_ends_a_writer_with_everything_durable(log: Path) -> None:
    with process("append", log, "--ack") as append:
        append.write("a\nb\n")
        append.lines(2)
        append.popen.send_signal(signal.SIGINT)
        assert append.popen.wait(TIMEOUT_S) == 130
        append.rest()
        assert append.end() == 130
        assert append.errors() == ["latewood: 2 appended and durable, sequences 100 to 101"]
    assert payloads(log)[100:] == ["a", "b"]


# -- pipes ---------------------------------------------------------------------------------------------


@pytest.fixture
def long_log(tmp_path: Path) -> Path:
    """Return a log whose listing no pipe holds."""
    lines = "".join(f"line {number}\n" for number in range(20_000))
    ok("append", tmp_path / "log", stdin=lines)
    return tmp_path / "log"


@pytest.mark.parametrize("flags", ["", "--raw", "--format json", "--format csv", "--format table"])
def test_whoever_has_seen_enough_may_leave(long_log: Path, flags: str) -> None:
    result = bash(f'latewood cat "$LOG" {flags} | head -n 1; echo "${{PIPESTATUS[0]}}"', long_log)
    assert result.stdout.splitlines()[-1] == "0"
    assert result.stderr == ""


def test_a_pipe_carries_records_from_log_to_log(long_log: Path, tmp_path: Path) -> None:
    result = bash(f'set -o pipefail; latewood cat "$LOG" | latewood append -q --json "{tmp_path}/copy"', long_log)
    assert result.returncode == 0, result.stderr
    assert ok("cat", tmp_path / "copy") == ok("cat", long_log)


def test_a_writer_whose_acknowledgements_nobody_reads_says_where_it_stopped(log: Path) -> None:
    script = 'yes line | latewood append "$LOG" --segment-bytes 16MiB --ack | head -n 1; echo "${PIPESTATUS[1]}"'
    result = bash(script, log)
    assert result.stdout.split() == ["100", "1"]
    said, summary = result.stderr.splitlines()
    assert "nobody reads the acknowledgements" in said
    count = row("info", log)["record_count"] - 100
    assert summary == f"latewood: {count:,} appended and durable, sequences 100 to {count + 99}"


def test_a_full_disk_behind_stdout_is_an_error(long_log: Path) -> None:
    for command in ("cat", "info"):
        result = bash(f'latewood {command} "$LOG" > /dev/full', long_log)
        assert result.returncode == 1
        assert result.stderr == "latewood: standard input or output: No space left on device\n"


def test_a_disk_without_room_keeps_what_was_acknowledged(log: Path) -> None:
    script = 'ulimit -f 16; seq 1000 | latewood append "$LOG" --ack --segment-bytes 64KiB'  # No file above 16 KiB.
    result = bash(script, log)
    assert result.returncode == 1
    summary, error = result.stderr.splitlines()
    assert "ulimit -f" in error
    count = len(result.stdout.split())
    assert error.endswith(f"; line {count + 1} of the input is the first that was not appended: resume there")
    assert summary == f"latewood: {count} appended and durable, sequences 100 to {count + 99}"
    assert payloads(log)[100:] == [str(number + 1) for number in range(count)]


def test_a_disk_without_room_names_the_line_of_json_that_did_not_fit(log: Path) -> None:
    lines = r"""for n in $(seq 500); do printf '\n{"payload":"%s"}\n' $n; done"""  # Every other line is blank.
    result = bash(f'ulimit -f 16; ({lines}) | latewood append "$LOG" --json --ack --segment-bytes 64KiB', log)
    assert result.returncode == 1
    count = len(result.stdout.split())
    assert f"; line {2 * (count + 1)} of the input is the first that was not appended" in result.stderr


def test_closed_streams_harm_no_log(log: Path) -> None:
    assert bash('latewood append "$LOG" <&- >&- 2>&-', log).returncode == 0
    assert bash('echo more | latewood append "$LOG" >&- 2>&-', log).returncode == 0
    assert bash('latewood info "$LOG" >&-', log).returncode == 0
    assert payloads(log)[100:] == ["more"]
    assert row("verify", log, "--deep")["is_sound"]


def test_output_is_utf_8_whatever_the_locale_says(log: Path) -> None:
    ok("append", log, stdin="wörld ✓\n")
    result = bash('PYTHONUTF8=0 LC_ALL=en_US.ISO-8859-1 PYTHONCOERCECLOCALE=0 latewood tail "$LOG" -n 1', log)
    assert '"payload":"wörld ✓"' in result.stdout


# -- a directory that cannot be written ----------------------------------------------------------------


@pytest.fixture
def read_only(log: Path) -> Iterator[list[str]]:
    """Make the log read-only; return what a command must be started with for that to count."""
    ok("readers", "seek", log, "billing", "--sequence", "98", "--create")
    prefix = []
    if os.geteuid() == 0:
        prefix = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    paths = [log, *log.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield prefix
    for path in paths:
        path.chmod(0o700 if path.is_dir() else 0o600)


@pytest.mark.needs("unprivileged")
def test_a_read_only_log_can_be_read(log: Path, read_only: list[str]) -> None:
    for command, count in ((["cat"], 100), (["info"], 1), (["verify", "--deep"], 1), (["tail"], 10)):
        with process(*command, log, prefix=read_only) as started:
            assert len(started.rest()) == count
            assert started.end() == 0
    with process("cleanup", log, "--dry-run", "--max-bytes", "0", prefix=read_only) as started:
        assert started.end() == 0


@pytest.mark.needs("unprivileged")
def test_a_read_only_log_is_followed_too(log: Path, read_only: list[str]) -> None:
    with process("tail", log, "-f", "-n", "1", "--raw", prefix=read_only) as tail:
        assert tail.line() == "record 99"
        if os.geteuid() == 0:  # We ourselves may still write.
            ok("append", log, stdin="more\n")
            assert tail.line() == "more"


@pytest.mark.needs("unprivileged")
@pytest.mark.parametrize(
    "command",
    [["append"], ["seal"], ["cleanup", "--yes"], ["readers", "rm", "billing", "--yes"], ["rebuild", "--yes"]],
    ids=lambda command: command[0],
)
def test_a_read_only_log_refuses_changes(log: Path, read_only: list[str], command: list[str]) -> None:
    name, *rest = command
    arguments = ["readers", "rm", str(log), *rest[1:]] if name == "readers" else [name, str(log), *rest]
    with process(*arguments, prefix=read_only) as started:
        assert started.end() == 1
        (line,) = started.errors()
    assert line.startswith(f"latewood: {log}")


@pytest.mark.needs("unprivileged")
def test_a_reader_of_a_read_only_log_is_not_moved(log: Path, read_only: list[str]) -> None:
    with process("readers", "seek", log, "billing", "--earliest", prefix=read_only) as seek:
        assert seek.end() == 1
        assert "cannot be written" in seek.errors()[0]
    with process("tail", log, "--raw", "--reader", "billing", prefix=read_only) as tail:
        assert tail.rest() == ["record 98", "record 99"]
        assert tail.end() == 1
    assert run("readers", "ls", log).exit_code == 0


@pytest.mark.needs("native")
def test_a_node_that_runs_already_is_not_started_twice(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    config, address = tmp_path / "node.toml", f"127.0.0.1:{port}"
    config.write_text(f'cluster_id = "solo"\nnode_id = 1\nlisten = "{address}"\n[peers]\n1 = "{address}"\n')
    ok("cluster", "init", "--config", config)
    with process("serve", "--config", config) as node:
        assert '"node_id":1' in node.line()
        with process("serve", "--config", config) as second:
            assert second.end() == ExitCode.LOCKED
            said = "\n".join(second.errors())
            assert f"is being written by process {node.popen.pid}" in said
            assert "node 1 of cluster 'solo' runs already" in said
