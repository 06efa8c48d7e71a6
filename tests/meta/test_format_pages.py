"""The pages in docs/format are true: their tables are those of the source, their examples what the code writes."""

import importlib
from pathlib import Path
from typing import Final

import pytest

from tests.meta import format_examples, format_tables, markdown

ELSEWHERE: Final = {"README", "catalog", "chunk", "spark", "store"}
"""Pages that are checked where their formats are: in tests/catalog, tests/archive, tests/spark and tests/runtime."""
PAGES: Final = sorted(path.stem for path in format_examples.PAGES.glob("*.md") if path.stem not in ELSEWHERE)
REMEDY: Final = (
    "If the format was meant to change: `python -m tests.meta.format_examples`, then look at the difference."
)


def read(page: str) -> str:
    return (format_examples.PAGES / f"{page}.md").read_text()


def shown_examples(text: str) -> dict[str, str]:
    """The examples that a page shows, by name."""
    return {
        fence.info.removeprefix("hex "): fence.text for fence in markdown.fences(text) if fence.info.startswith("hex ")
    }


def shown_tables(text: str) -> list[list[format_tables.Row]]:
    return [table.rows for table in format_tables.tables(text)]


def test_every_format_has_its_page() -> None:
    assert sorted(format_examples.EXAMPLES) == PAGES


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_are_what_the_code_writes(page: str) -> None:
    assert shown_examples(read(page)) == format_examples.examples_of(page), REMEDY


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_of_a_page_are_those_of_the_source(page: str) -> None:
    modules = dict.fromkeys([page, *(example.module for example in format_examples.EXAMPLES[page].values())])
    sources = [importlib.import_module(f"latewood.format.{module}").__doc__ or "" for module in modules]
    assert shown_tables(read(page)) == [table for source in sources for table in shown_tables(source)]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_in_the_index(page: str) -> None:
    index = format_examples.PAGES / "README.md"
    assert f"{page}.md" in {Path(target).name for _, target in markdown.links(index.read_text())}


def test_one_byte_that_differs_is_found() -> None:
    files = dict(format_examples.example_log())
    example = format_examples.EXAMPLES["pointer"]["pointer"]
    before = format_examples.render(example, files)
    raw = bytearray(files[example.file])
    raw[24] ^= 1
    files[example.file] = bytes(raw)
    assert format_examples.render(example, files) != before


def test_rewriting_a_page_replaces_its_examples_and_nothing_else() -> None:
    page = "before\n\n```hex one\nold\n```\n\nbetween\n\n```python\nkept\n```\n"
    assert format_examples.rewritten(page, {"one": "new\n"}) == page.replace("old", "new")
