"""What an executor makes of a task, without Spark."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from latewood.errors import CorruptError, LatewoodError, UnavailableError, UsageError
from latewood.spark.archive import ArchiveNames
from latewood.spark.executor import done, tools_of
from latewood.tasks.engine import Tools


def two_and_then(error: LatewoodError | None, tools: Tools) -> Iterator[int]:
    """A task of the tests."""
    del tools
    yield from (1, 2)
    if error is not None:
        raise error


def outcome(error: LatewoodError | None, names: ArchiveNames) -> Any:
    return pickle.loads(done(pickle.dumps((two_and_then, error)), lambda: tools_of(names)))  # noqa: S301 - as above


def test_what_came_before_an_error_counts(tmp_path: Path) -> None:
    assert outcome(None, ArchiveNames(str(tmp_path))) == ([1, 2], None)
    results, error = outcome(CorruptError("torn", tmp_path, 7), ArchiveNames(str(tmp_path)))
    assert results == [1, 2]
    assert isinstance(error, CorruptError)


def test_what_another_try_may_mend_fails_the_task_of_spark(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        outcome(UnavailableError("later"), ArchiveNames(str(tmp_path)))


def test_a_store_that_is_not_seen_from_here_is_an_error_and_nothing_is_done(tmp_path: Path) -> None:
    """A removal that finds nothing would be taken for one that is done."""
    results, error = outcome(None, ArchiveNames(str(tmp_path / "lake")))
    assert results == []
    assert isinstance(error, UsageError)
    assert "under the same path" in str(error)


def test_a_task_that_needs_no_key_does_without_the_key_file(tmp_path: Path) -> None:
    assert outcome(None, ArchiveNames(str(tmp_path), key_file="missing.keys")) == ([1, 2], None)
