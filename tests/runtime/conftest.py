"""Stores to try things on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from latewood.runtime import Store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with Store.open(root) as opened:
        yield opened
