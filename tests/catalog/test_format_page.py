"""docs/format/catalog.md is true: its byte tables are those of the source, its example what the code writes."""

import importlib
import re
from pathlib import Path
from typing import Final

from latewood.catalog import tables
from latewood.catalog.tables import JOB, TABLES, MetricDelta, Record
from tests.catalog.desk import job
from tests.meta import format_tables

PAGE: Final = Path(__file__).parents[2] / "docs" / "format" / "catalog.md"
MODULES: Final = (
    *("record", "db", "wal_state", "chunk", "job", "job_index", "job_gate"),
    *("metric", "generation", "change_log"),
)


def test_the_tables_of_the_page_are_those_of_the_source() -> None:
    sources = [importlib.import_module(f"latewood.catalog.tables.{name}").__doc__ or "" for name in MODULES]
    expected = [table.rows for source in sources for table in format_tables.tables(source)]
    assert [table.rows for table in format_tables.tables(PAGE.read_text())] == expected


def test_the_example_is_what_the_code_writes() -> None:
    example = PAGE.read_text().split("```text\n")[1].split("```")[0]
    shown = bytes.fromhex("".join(re.findall(r"^ *\d+  ((?:[0-9a-f]{2} )*[0-9a-f]{2}) ", example, re.MULTILINE)))
    key = JOB.pack_key(1)
    assert shown == key + JOB.encode(key, job(1))


def test_every_table_is_on_the_page_under_its_number() -> None:
    page = PAGE.read_text()
    for table in TABLES:
        assert f"| `{table.name}` | {table.number} |" in page


def test_the_elements_of_every_record_are_on_the_page_in_their_order() -> None:
    page = PAGE.read_text()
    shown = dict(re.findall(r"^\| `(\w+)` \| ([\w, ]*) \|$", page, re.MULTILINE))
    kinds = [kind for kind in vars(tables).values() if isinstance(kind, type) and issubclass(kind, Record)]
    stored = {kind.__name__: _elements(kind) for kind in kinds if kind not in (Record, MetricDelta)}
    assert shown == stored


def _elements(kind: type[Record]) -> str:
    tag = kind.__struct_config__.tag
    return ", ".join([*([] if tag is None else [str(tag)]), *kind.__struct_fields__])
