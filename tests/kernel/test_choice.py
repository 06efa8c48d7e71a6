"""Which twin `latewood.kernel` is."""

import os
import subprocess
import sys

import pytest

ASK = "from latewood import kernel; print(kernel.NAME, kernel.Record.__module__)"
WITHOUT = "import sys; sys.modules['latewood._native'] = None; "
BROKEN = """
import sys

class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "latewood._native":
            raise RuntimeError("broken")

sys.meta_path.insert(0, Broken())
"""


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


@pytest.mark.parametrize("pure", ["1", "0"])
def test_a_free_threaded_python_is_refused_in_a_sentence(pure: str) -> None:
    found = ask("import sys; sys.abiflags = 't'; import latewood", pure)
    assert found.returncode != 0
    assert found.stderr.endswith(
        "Latewood does not run on a free-threaded Python (3.13t, 3.14t): use the ordinary build of it\n"
    )
