"""Stores to try things on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from latewood.runtime import Store
from tests.runtime.disk import quick_disk


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Where a pond can be."""
    with quick_disk(tmp_path) as directory:
        yield directory


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with Store.open(root) as opened:
        yield opened
