"""docs/format/spark.md is true: its examples are what the code writes, and every field is explained."""

import json
from pathlib import Path
from typing import Final

import pytest

from latewood.spark import commits_files, offsets
from latewood.spark.commits_plan import CommitRecord, Intent, LogEnd, Progress
from latewood.spark.offsets import decode_offsets, encode_offsets
from tests.meta import markdown

PAGE: Final = Path(__file__).parents[2] / "docs" / "format" / "spark.md"


@pytest.mark.parametrize("name", ["offsets-2-log", "offsets-2-store"])
def test_the_examples_are_what_the_code_writes(name: str) -> None:
    (example,) = [fence.text for fence in markdown.fences(PAGE.read_text()) if fence.info == f"json {name}"]
    assert json.dumps(encode_offsets(decode_offsets(json.loads(example)))) == example.strip()


def test_every_field_is_explained() -> None:
    text = PAGE.read_text()
    names = [name for kind in (Intent, CommitRecord, Progress, LogEnd) for name in kind.__struct_fields__]
    assert [name for name in names if f"`{name}`" not in text and name != "sequence"] == []


def test_the_page_names_the_versions() -> None:
    assert f"The version is {commits_files.VERSION}" in PAGE.read_text()
    assert f"Version {offsets.VERSION}, of a log" in PAGE.read_text()
