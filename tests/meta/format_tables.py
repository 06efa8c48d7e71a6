"""The byte tables in the docstrings of `latewood.format`, checked against the constants of their module.

A table begins with the columns `offset`, `size` and `field`.  The paragraph above it names the constant that its sizes
add up to, as in "`HEADER_SIZE` bytes"; without a name it is SIZE.  A size that is not a number (`n`) marks
the variable part: it ends the check, and the constant, where there is one, counts only what stands before it.
"""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Final, NamedTuple

_NAMED_SIZE: Final = re.compile(r"`([A-Z][A-Z0-9_]*)` bytes")
_COLUMNS: Final = ["offset", "size", "field"]
_FIXED_TYPES: Final = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}


class Row(NamedTuple):
    """One line of a table, as written."""

    offset: str
    size: str
    field: str
    type: str


class Table(NamedTuple):
    """One table and the constant that it adds up to."""

    constant: str
    rows: list[Row]


def tables(docstring: str) -> Iterator[Table]:
    """Every byte table in a docstring."""
    constant, rows = "SIZE", list[Row]()
    for paragraph in re.split(r"\n\s*\n", docstring):
        lines = paragraph.strip().splitlines()
        start = next((number for number, line in enumerate(lines) if _cells(line)[:3] == _COLUMNS), None)
        prose = " ".join(lines[:start])
        if match := _NAMED_SIZE.search(prose):
            constant = match[1]
        elif prose:
            constant = "SIZE"
        if start is not None:
            rows = [_row(line) for line in lines[start + 2 :] if line.lstrip().startswith("|")]
            yield Table(constant, rows)


def own_constants(module: ModuleType) -> dict[str, object]:
    """The names that a module assigns itself, without those that it imports."""
    body = ast.parse(inspect.getsource(module)).body
    targets: list[ast.expr] = [node.target for node in body if isinstance(node, ast.AnnAssign)]
    targets += [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    return {target.id: getattr(module, target.id) for target in targets if isinstance(target, ast.Name)}


def problems(docstring: str, constants: Mapping[str, object]) -> list[str]:
    """What is wrong with a module's tables, given the module's constants."""
    found = list(tables(docstring))
    described = {table.constant for table in found}
    sizes = {name for name in constants if name == "SIZE" or (name.endswith("_SIZE") and not name.startswith("_"))}
    missing = [f"no table adds up to {name}" for name in sorted(sizes - described)]
    return missing + [problem for table in found for problem in _table_problems(table, constants)]


def _table_problems(table: Table, constants: Mapping[str, object]) -> Iterator[str]:
    end = 0
    for row in table.rows:
        if row.offset != str(end):
            yield f"{row.field}: offset {row.offset}, but the field before it ends at {end}"
        if not row.size.isdecimal():
            break
        if _FIXED_TYPES.get(row.type, int(row.size)) != int(row.size):
            yield f"{row.field}: size {row.size}, but its type is {row.type}"
        end += int(row.size)
    variable = any(not row.size.isdecimal() for row in table.rows)
    expected = constants.get(table.constant, end if variable else None)
    if expected != end:
        yield f"the sizes add up to {end}, but {table.constant} is {expected}"


def _row(line: str) -> Row:
    cells = _cells(line)
    return Row(cells[0], cells[1], cells[2], cells[3] if len(cells) > len(_COLUMNS) else "")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
