"""Which twin `latewood.kernel` is."""

import os
import subprocess
import sys

import pytest

ASK = "from latewood import kernel; print(kernel.NAME, kernel.Record.__module__)"
WITHOUT = "import sys; sys.modules['latewood._native'] = None; "
BROKEN = "import builtins; real = builtins.__import__\ndef broken(name, *rest):\n    if 'kernel' in name: return real(name, *rest)\n    if 'latewood' == name and rest[2] and '_native' in rest[2]: raise RuntimeError('broken')\n    return real(name, *rest)\nbuiltins.__import__ = broken\n"  # noqa: E501 - a program in one line


def ask(program: str, pure: str | None) -> subprocess.CompletedProcess[str]:
    """Run a program with LATEWOOD_PURE set or not."""
    environment = {name: value for name, value in os.environ.items() if name != "LATEWOOD_PURE"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    if pure is not None:
        environment["LATEWOOD_PURE"] = pure
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.usefixtures("twins")
@pytest.mark.parametrize("pure", [None, "0", ""])
def test_the_native_twin_is_picked_where_it_is(pure: str | None) -> None:
    assert ask(ASK, pure).stdout == "native latewood._native\n"


def test_the_pure_twin_can_be_asked_for() -> None:
    assert ask(ASK, "1").stdout == "pure latewood.kernel.pure_record\n"


def test_the_pure_twin_stands_in_for_a_missing_one() -> None:
    assert ask(WITHOUT + ASK, None).stdout == "pure latewood.kernel.pure_record\n"


def test_another_error_than_a_failed_import_is_not_hidden() -> None:
    found = ask(BROKEN + ASK, None)
    assert found.returncode != 0
    assert "RuntimeError: broken" in found.stderr
