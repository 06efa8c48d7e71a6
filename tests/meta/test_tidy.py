"""The source stays small: modules, functions and names."""

from pathlib import Path
from typing import Final

import pytest

from tests.meta import tidy

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src"

LONG_FUNCTIONS_ALLOWED: Final[dict[str, str]] = {}
"""`latewood/module.py:Class.method` to the reason why it is best in one piece.  This list may only shrink."""


def modules() -> dict[str, str]:
    paths = sorted(SOURCE.rglob("*.py"))
    return {path.relative_to(SOURCE).as_posix(): path.read_text() for path in paths}


def test_every_module_is_short_named_and_described() -> None:
    problems = [problem for path, source in modules().items() for problem in tidy.module_problems(source, path)]
    assert not problems, "\n".join(problems)


def test_no_function_is_long_but_those_that_say_why() -> None:
    found = {where for path, source in modules().items() for where in tidy.long_functions(source, path)}
    assert found <= LONG_FUNCTIONS_ALLOWED.keys(), f"split them: {sorted(found - LONG_FUNCTIONS_ALLOWED.keys())}"
    assert LONG_FUNCTIONS_ALLOWED.keys() <= found, f"take off the list: {sorted(LONG_FUNCTIONS_ALLOWED.keys() - found)}"
    assert all(LONG_FUNCTIONS_ALLOWED.values())


def test_nine_functions_in_ten_are_of_the_usual_length() -> None:
    every = [function for path, source in modules().items() for function in tidy.functions(source, path)]
    assert tidy.usual_share(every) >= tidy.USUAL_SHARE_MIN


def test_no_note_to_oneself_is_left_in_the_native_source() -> None:
    paths = sorted((ROOT / "native" / "src").rglob("*.rs"))
    problems = [problem for path in paths for problem in tidy.leftovers(path.read_text(), path.name)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("path", "source", "problem"),
    [
        ("a.py", '"""Long."""\n' + "x = 1\n" * tidy.MODULE_LINES_MAX, "lines, at most"),
        ("a.py", "x = 1\n", "no docstring"),
        ("log/utils.py", '"""Named after nothing."""\n', "says nothing"),
        ("misc/a.py", '"""In a folder named after nothing."""\n', "says nothing"),
        ("a.py", '"""Unfinished."""\nx = 1  # ' + "TO" + "DO: finish\n", "a.py:2: "),
    ],
)
def test_an_untidy_module_is_found(path: str, source: str, problem: str) -> None:
    (found,) = tidy.module_problems(source, path)
    assert problem in found


def test_a_long_method_is_found_by_its_name() -> None:
    body = "        x = 1\n" * tidy.FUNCTION_LINES_MAX
    source = f"class Thing:\n    def do(self):\n{body}"
    assert tidy.long_functions(source, "a.py") == {"a.py:Thing.do"}


def test_a_docstring_makes_no_function_long() -> None:
    docstring = '    """' + "Told at length.\n" * tidy.FUNCTION_LINES_MAX + '    """\n'
    source = f"def do():\n{docstring}    return 1\n"
    assert list(tidy.functions(source, "a.py")) == [tidy.Function("a.py:do", 2)]


def test_a_tenth_of_longish_functions_is_the_most() -> None:
    short, longish = tidy.Function("a", 3), tidy.Function("b", tidy.FUNCTION_LINES_USUAL)
    assert tidy.usual_share([short] * 9 + [longish]) == tidy.USUAL_SHARE_MIN
    assert tidy.usual_share([short] * 8 + [longish]) < tidy.USUAL_SHARE_MIN
