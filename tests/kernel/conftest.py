"""Both twins of the kernel: every test that takes `kernel` runs on each."""

import importlib
from types import ModuleType
from typing import Final

import pytest

from latewood.kernel import pure

KERNELS: Final = [pytest.param("native", marks=pytest.mark.needs("native")), "pure"]
"""Parameters for tests that start one by its name."""


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    """Return one twin after the other."""
    return importlib.import_module("latewood._native") if request.param == "native" else pure


@pytest.fixture(scope="session")
def native_twin() -> ModuleType:
    """Return the native twin; whoever asks for it needs it."""
    return importlib.import_module("latewood._native")


@pytest.fixture(scope="session")
def twins(native_twin: ModuleType) -> tuple[ModuleType, ModuleType]:
    """Return both twins, to be compared."""
    return native_twin, pure
