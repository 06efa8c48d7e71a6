"""What the crash tests share."""

import gc
import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _frozen_heap() -> None:
    """Thousands of disks are collected here, and looking through everything that was imported would take longer."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Recovery says what it cuts and ignores; thousands of times here."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
    gc.collect()
