"""A catalog with two databases, and a clock to move by hand."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from latewood.catalog import Catalog
from latewood.jobs import JobManager
from latewood.testing import FakeClock
from tests.jobs.kit import make_databases, manager_of, opened


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Failures are told as warnings; here most of them are meant."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def catalog(tmp_path: Path, clock: FakeClock) -> Iterator[Catalog]:
    with opened(tmp_path / "catalog.mdb", clock) as found:
        make_databases(found)
        yield found


@pytest.fixture
def manager(catalog: Catalog, clock: FakeClock) -> JobManager:
    return manager_of(catalog, clock)
