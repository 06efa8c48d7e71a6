"""Where the native kernel can be built, it is the one under test."""

import os
import shutil

import pytest

from latewood import kernel

PURE = os.environ.get("LATEWOOD_PURE") == "1"


@pytest.mark.skipif(PURE, reason="LATEWOOD_PURE=1 asks for the pure kernel")
@pytest.mark.skipif(shutil.which("cargo") is None, reason="no cargo, so no native kernel")
def test_the_native_kernel_runs_where_cargo_exists() -> None:
    assert kernel.NAME == "native"


@pytest.mark.skipif(not PURE, reason="LATEWOOD_PURE is not 1")
def test_the_pure_kernel_runs_when_it_is_asked_for() -> None:
    assert kernel.NAME == "pure"
