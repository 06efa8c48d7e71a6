"""The native kernel is used wherever it is built; LATEWOOD_REQUIRE=native says that it must be."""

import os
from importlib.util import find_spec
from typing import Final

from latewood import kernel

PURE: Final = os.environ.get("LATEWOOD_PURE") == "1"


def test_the_kernel_is_the_native_one_where_it_is_built_and_nobody_asks_for_the_pure_one() -> None:
    built = find_spec("latewood._native") is not None
    is_native = kernel.NAME == "native"
    assert is_native == (built and not PURE)
