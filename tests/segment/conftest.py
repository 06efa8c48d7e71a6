"""Every segment of these tests lies on a disk in memory."""

import pytest

from latewood.testing import MemFS


@pytest.fixture
def fs() -> MemFS:
    return MemFS()
