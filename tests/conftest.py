"""What every test shares: the `--campaign` switch, how hard Hypothesis tries, what is slow, and what tests need.

Ordinary runs are deterministic, so that a red build is red again when it is repeated.  A campaign draws new
examples every time, and many more of them.
"""

import logging
import signal
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "steady",
    deadline=None,  # a busy machine is no bug
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],  # as deadline
)
settings.register_profile("campaign", settings.get_profile("steady"), derandomize=False, max_examples=2_000)

pytest_plugins = ["tests.needs"]

STARTERS: Final = {"moto", "spark", "weed", "without_java"}
"""Fixtures that start Spark, a server or the demo: whoever asks for one is slow."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--campaign", action="store_true", help="search for hours, not minutes: `make crash`")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # A shell started us in the background: children inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.load_profile("campaign" if config.getoption("--campaign") else "steady")


@pytest.hookimpl(tryfirst=True)  # Before `-m` chooses.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not STARTERS.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


def pytest_runtest_setup() -> None:
    """Have every warning of a test heard, whatever an earlier test in this process has turned down."""
    logging.disable(logging.NOTSET)
    logging.getLogger("latewood").setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def campaign(pytestconfig: pytest.Config) -> bool:
    """Whether this run is a long campaign, so that a test may take all the states that it can enumerate."""
    return bool(pytestconfig.getoption("--campaign"))
