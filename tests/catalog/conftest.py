"""What the tests of the catalog share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from latewood.catalog import Catalog
from tests.catalog.desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with Desk(tmp_path) as desk:
        yield desk


@pytest.fixture
def catalog(desk: Desk) -> Catalog:
    return desk.open()
