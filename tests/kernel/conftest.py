"""Both twins of the kernel: every test that takes `kernel` runs on each."""

import importlib
import shutil
from types import ModuleType

import pytest

from latewood.kernel import pure


def native() -> ModuleType:
    """Return the native twin; its absence is an error wherever it could have been built."""
    if shutil.which("cargo") is None:
        pytest.importorskip("latewood._native", reason="no cargo, so no native kernel")
    return importlib.import_module("latewood._native")


@pytest.fixture(params=["native", "pure"])
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    """Return one twin after the other."""
    return native() if request.param == "native" else pure


@pytest.fixture
def twins() -> tuple[ModuleType, ModuleType]:
    """Return both twins, to be compared."""
    return native(), pure
