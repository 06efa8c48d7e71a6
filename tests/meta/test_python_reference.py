"""The reference page of the Python API knows every name, and is up to date."""

import re
from pathlib import Path
from typing import Final

import latewood
import latewood.spark
from tests.meta import markdown, python_reference

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "python.md"
COMMAND: Final = "python -m tests.meta.python_reference > docs/reference/python.md"


def test_the_reference_page_is_up_to_date() -> None:
    assert PAGE.read_text() == python_reference.reference(), f"run `{COMMAND}`"


def test_every_exported_name_is_explained() -> None:
    assert python_reference.unexplained() == set()


def test_every_name_for_spark_has_its_heading() -> None:
    headings = set(markdown.headings(PAGE.read_text()))
    assert {f"latewood.spark.{name}" for name in latewood.spark.__all__ if name != "jobs"} <= headings


def test_every_call_of_a_log_and_of_a_reader_has_its_heading() -> None:
    headings = set(markdown.headings(PAGE.read_text()))
    assert {f"Queue.{name}" for name in ("append", "append_many", "append_async", "reader", "cleanup")} <= headings
    assert {f"Reader.{name}" for name in ("next", "poll", "follow", "commit", "seek", "lag")} <= headings


def test_what_a_call_of_a_client_returns_is_explained_too() -> None:
    page = PAGE.read_text()
    calls = re.findall(r"(?ms)^### (?:Async)?(?:Client|Partition|PartitionReader|Reader)\.\w+\n(.*?)(?=^#)", page)
    results = [result for call in calls for result in re.findall(r"(?m)\) -> (.*)$", call)]
    names = {name for result in results for name in re.findall(r"\b[A-Z]\w+", result)}
    ours = names - {"AsyncIterator", "Iterator", "None", "RecordBatch", "Self", "Table"}
    assert {"AsyncPartition", "Partition", "PartitionInfo", "StatusReply"} <= ours
    assert ours <= set(markdown.headings(page))


def test_every_public_call_says_what_it_does() -> None:
    for cls in (latewood.Queue, latewood.Reader):
        assert all(getattr(cls, name).__doc__ for name in dir(cls) if name[0] != "_" and name != "retention")
