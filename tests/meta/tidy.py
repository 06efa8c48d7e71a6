"""How long and how well named the source is.

A function's length is what a reader must hold in mind: from its `def` to its last line, its docstring not counted.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

MODULE_LINES_MAX: Final = 500
FUNCTION_LINES_MAX: Final = 60
FUNCTION_LINES_USUAL: Final = 30
USUAL_SHARE_MIN: Final = 0.9

_NOTHING_NAMES: Final = {"common", "helpers", "misc", "utils"}
_LEFTOVER: Final = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")  # split, so that this line is not one


class Function(NamedTuple):
    """One function or method of the source."""

    where: str
    lines: int


def functions(source: str, path: str) -> Iterator[Function]:
    """Every function in a module, nested ones too, as `path:Class.name`."""
    yield from _functions_in(_parsed(source), f"{path}:")


def long_functions(source: str, path: str) -> set[str]:
    return {function.where for function in functions(source, path) if function.lines > FUNCTION_LINES_MAX}


def usual_share(every: list[Function]) -> float:
    """The share of functions that stay under the usual length."""
    return sum(function.lines < FUNCTION_LINES_USUAL for function in every) / len(every)


def module_problems(source: str, path: str) -> list[str]:
    """What is wrong with a module as a whole."""
    problems = []
    lines = len(source.splitlines())
    if lines > MODULE_LINES_MAX:
        problems.append(f"{path}: {lines} lines, at most {MODULE_LINES_MAX}")
    if ast.get_docstring(_parsed(source)) is None:
        problems.append(f"{path}: no docstring")
    if _NOTHING_NAMES & set(Path(path).with_suffix("").parts):
        problems.append(f"{path}: the name says nothing about what is inside")
    return problems + leftovers(source, path)


def leftovers(source: str, path: str) -> list[str]:
    """Notes to oneself that belong in an issue."""
    found = ((number, _LEFTOVER.search(line)) for number, line in enumerate(source.splitlines(), 1))
    return [f"{path}:{number}: {match[1]}" for number, match in found if match]


@cache  # Three tests look at every module.
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _functions_in(node: ast.AST, prefix: str) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(prefix + child.name, _length(child))
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _functions_in(child, f"{prefix}{child.name}.")
        else:
            yield from _functions_in(child, prefix)


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    whole = _span(function)
    has_docstring = ast.get_docstring(function, clean=False) is not None
    return whole - _span(function.body[0]) if has_docstring else whole


def _span(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1
