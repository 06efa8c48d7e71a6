"""`import latewood` is quick: nothing heavy comes along before it is asked for."""

import subprocess
import sys
from typing import Final

import pytest

HEAVY: Final = ("asyncio", "click", "ctypes", "lmdb", "numpy", "pandas", "pyarrow", "pyspark", "rich")


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after a statement."""
    script = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def test_importing_latewood_loads_nothing_heavy() -> None:
    loaded = loaded_by("import latewood")
    assert "latewood" in loaded
    assert not loaded & set(HEAVY)


def test_importing_the_command_line_loads_nothing_that_draws_or_computes() -> None:
    assert not loaded_by("import latewood.cli.main") & (set(HEAVY) - {"click"})


@pytest.mark.parametrize("name", ["asyncio", "ctypes"])
def test_a_heavy_import_is_noticed(name: str) -> None:
    assert name in loaded_by(f"import {name}")
