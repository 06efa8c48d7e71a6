"""What the tests of a queue share."""

from collections.abc import Iterator

import pytest

from tests.log.desk import Desk


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Desk() as desk:
        yield desk
