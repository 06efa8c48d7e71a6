"""The byte tables in the source say what the code does."""

import importlib
import pkgutil
from typing import Final

import pytest

import latewood.format
from tests.meta import format_tables

MODULES: Final = [module.name for module in pkgutil.iter_modules(latewood.format.__path__)]

GOOD: Final = """Header, `HEADER_SIZE` bytes:

| offset | size | field  | type | meaning |
| -----: | ---: | ------ | ---- | ------- |
|      0 |    4 | length | u32  | bytes   |
|      4 |    8 | time   | u64  | ns      |

Then the payload.

| offset | size | field   | type | meaning |
| -----: | ---: | ------- | ---- | ------- |
|      0 |    2 | kind    | u16  | a kind  |
|      2 |    n | payload | [u8] | bytes   |
"""


@pytest.mark.parametrize("name", MODULES)
def test_the_tables_of_a_format_add_up(name: str) -> None:
    module = importlib.import_module(f"latewood.format.{name}")
    found = format_tables.problems(module.__doc__ or "", format_tables.own_constants(module))
    assert not found, "\n".join(found)


def test_most_formats_have_a_table() -> None:
    documented = [
        name
        for name in MODULES
        if list(format_tables.tables(importlib.import_module(f"latewood.format.{name}").__doc__ or ""))
    ]
    assert {"record", "segment", "manifest", "pointer", "cursor"} <= set(documented)


def test_sound_tables_have_no_problem() -> None:
    assert [table.constant for table in format_tables.tables(GOOD)] == ["HEADER_SIZE", "SIZE"]
    assert format_tables.problems(GOOD, {"HEADER_SIZE": 12}) == []


@pytest.mark.parametrize(
    ("good", "bad", "problem"),
    [
        ("|      4 |    8 | time", "|      8 |    8 | time", "time: offset 8, but the field before it ends at 4"),
        ("|      0 |    4 | length", "|      2 |    4 | length", "length: offset 2, but the field before it ends at 0"),
        ("|      2 |    n | payload", "|      4 |    n | payload", "payload: offset 4"),
        ("|      0 |    4 | length | u32", "|      0 |    4 | length | u16", "length: size 4, but its type is u16"),
        ("`HEADER_SIZE` bytes", "Some bytes", "no table adds up to HEADER_SIZE"),
    ],
)
def test_a_planted_mistake_is_found(good: str, bad: str, problem: str) -> None:
    assert good in GOOD
    found = format_tables.problems(GOOD.replace(good, bad), {"HEADER_SIZE": 12, "SIZE": 2})
    assert any(line.startswith(problem) for line in found)


@pytest.mark.parametrize(
    ("constants", "problem"),
    [
        ({"HEADER_SIZE": 16}, "the sizes add up to 12, but HEADER_SIZE is 16"),
        ({}, "the sizes add up to 12, but HEADER_SIZE is None"),
        ({"HEADER_SIZE": 12, "SIZE": 4}, "the sizes add up to 2, but SIZE is 4"),
    ],
)
def test_a_sum_that_is_not_the_constant_is_found(constants: dict[str, object], problem: str) -> None:
    assert format_tables.problems(GOOD, constants) == [problem]
