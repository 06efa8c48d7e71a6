"""How many files a process may have open, and what is said when it has no more."""

import copy
import errno
from pathlib import Path

import pytest

from latewood.errors import StorageError, TooManyFiles
from latewood.fs.descriptors import reserve_of
from latewood.fs.failures import translated


def test_the_error_names_the_limit_and_what_to_do() -> None:
    error = translated(OSError(errno.EMFILE, "Too many open files"), Path("q/next.q"))
    assert isinstance(error, TooManyFiles)
    assert str(error).startswith("q/next.q: Too many open files: this process may have ")
    assert "`ulimit -n NUMBER`" in str(error)


def test_a_limit_of_the_whole_machine_is_another_matter() -> None:
    error = translated(OSError(errno.ENFILE, "Too many open files in system"), Path("q"))
    assert type(error) is StorageError
    assert str(error) == "q: Too many open files in system, of all programs together: see `sysctl fs.file-max`"


@pytest.mark.parametrize(
    ("wanted", "hard", "advice"),
    [
        (2000, 4096, "(`ulimit -n 2000`; the hard limit, 4,096, is the most)"),
        (5000, 4096, "(`ulimit -n 5000`; the hard limit, 4,096, must be raised as well)"),
        (None, 4096, "(`ulimit -n NUMBER`; the hard limit, 4,096, is the most)"),
    ],
)
def test_the_advice_says_whether_the_hard_limit_is_in_the_way(wanted: int | None, hard: int, advice: str) -> None:
    error = TooManyFiles("no room", 1024, hard, wanted)
    assert advice in str(error)
    assert str(copy.copy(error)) == str(error), "it pickles"


def test_of_a_small_limit_less_is_left_to_everything_else() -> None:
    assert [reserve_of(limit) for limit in (16, 256, 1024, 1 << 20)] == [2, 32, 64, 64]
