"""docs/format/chunk.md is true: its tables are those of the source, its examples what the code writes."""

from latewood.archive import chunk, crypt
from latewood.archive.chunk import stored_schema
from tests.archive import chunk_page
from tests.meta import format_tables

REMEDY = "If the format was meant to change: `python -m tests.archive.chunk_page`, then look at the difference."


def test_the_examples_are_what_the_code_writes() -> None:
    text = chunk_page.PAGE.read_text()
    assert all(f" {name}\n" in text for name in chunk_page.examples())
    assert chunk_page.rewritten(text) == text, REMEDY


def test_the_byte_tables_are_those_of_the_source() -> None:
    shown = [table.rows for table in format_tables.tables(chunk_page.PAGE.read_text())]
    assert shown == chunk_page.tables(chunk) + chunk_page.tables(crypt)
    for module, constant, size in ((chunk, "MARK_SIZE", chunk.MARK_SIZE), (crypt, "HEADER_SIZE", crypt.HEADER_SIZE)):
        assert format_tables.problems(module.__doc__ or "", {constant: size}) == []


def test_every_column_and_every_field_is_explained() -> None:
    text = chunk_page.PAGE.read_text()
    names = [*stored_schema(keyed=True).names, *chunk.ChunkMeta.__struct_fields__, *chunk.RowGroup.__struct_fields__]
    missing = [name for name in names if f"| `{name}` |" not in text]
    assert not missing
