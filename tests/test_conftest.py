"""What one test does to logging, no later test sees."""

import logging

from tests.conftest import pytest_runtest_setup


def test_a_level_that_an_earlier_test_has_set_hides_no_warning() -> None:
    logging.getLogger("latewood").setLevel(logging.ERROR)  # As the demo does, which tests also run in their process.
    logging.disable(logging.CRITICAL)
    pytest_runtest_setup()
    assert logging.getLogger("latewood.spark").isEnabledFor(logging.WARNING)
