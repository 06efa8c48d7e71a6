"""docs/format/spark.md is true: its examples are what the code writes, and every field is explained."""

import json
from pathlib import Path
from typing import Final

import pytest

from latewood.errors import UnsupportedVersion
from latewood.format import checked_json
from latewood.format.identity import Mark
from latewood.spark import commits_files, offsets
from latewood.spark.commits_plan import CommitRecord, Intent, LogEnd, Progress
from latewood.spark.offsets import decode_offsets, encode_offsets
from tests.meta import markdown

MARK: Final = Mark(bytes(range(16)), 0x90AB)
PAGE: Final = Path(__file__).parents[2] / "docs" / "format" / "spark.md"


@pytest.mark.parametrize("name", ["offsets-2-log", "offsets-2-store"])
def test_the_examples_are_what_the_code_writes(name: str) -> None:
    (example,) = [fence.text for fence in markdown.fences(PAGE.read_text()) if fence.info == f"json {name}"]
    assert json.dumps(encode_offsets(decode_offsets(json.loads(example)))) == example.strip()


@pytest.mark.parametrize(("name", "kind"), [("intent-2", Intent), ("commits-2", CommitRecord)])
def test_the_files_of_a_sink_are_what_the_code_writes(name: str, kind: type[Intent] | type[CommitRecord]) -> None:
    (example,) = [fence.text for fence in markdown.fences(PAGE.read_text()) if fence.info == f"json {name}"]
    body = checked_json.decode(example.encode(), kind, commits_files.VERSION, name, Path(name))
    assert checked_json.encode(commits_files.VERSION, body) == example.encode()
    if isinstance(body, Intent):
        assert (body.shards[0].done, body.shards[0].start, body.shards[0].mark, body.shards[0].end) == (0, 12, MARK, 12)
    else:
        assert (body.ends[0].mark, body.ends[0].sequence) == (MARK, 18)


def test_a_file_of_a_later_program_is_not_taken_for_damage() -> None:
    raw = checked_json.encode(3, CommitRecord(query="q", kind="stream", completions=[]))
    with pytest.raises(UnsupportedVersion):
        checked_json.decode(raw, CommitRecord, 2, "what is known of a commit", Path("x"), oldest=1)


def test_every_field_is_explained() -> None:
    text = PAGE.read_text()
    names = [name for kind in (Intent, CommitRecord, Progress, LogEnd) for name in kind.__struct_fields__]
    assert [name for name in names if f"`{name}`" not in text and name != "sequence"] == []


def test_the_page_names_the_versions() -> None:
    assert f"The version is {commits_files.VERSION}" in PAGE.read_text()
    assert f"Version {offsets.VERSION}, of a log" in PAGE.read_text()
