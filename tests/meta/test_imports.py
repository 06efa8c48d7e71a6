"""`import latewood` is quick: nothing heavy comes along before it is asked for."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.slow
HEAVY: Final = ("asyncio", "click", "ctypes", "lmdb", "numpy", "pandas", "pyarrow", "pyspark", "rich")


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after a statement."""
    script = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    return set(result.stdout.splitlines()[-1].split())


def loaded_by_command(*arguments: str | Path) -> set[str]:
    """The top-level modules that a command, which must succeed, has loaded at its end."""
    return loaded_by(
        "import io, sys\nfrom latewood.cli.main import main\n"
        f"sys.argv, sys.stdin = {['latewood', *map(str, arguments)]!r}, io.TextIOWrapper(io.BytesIO(b'line'))\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
    )


def test_importing_latewood_loads_nothing_heavy() -> None:
    loaded = loaded_by("import latewood")
    assert "latewood" in loaded
    assert not loaded & set(HEAVY)


def test_importing_the_command_line_loads_nothing_that_draws_or_computes() -> None:
    assert not loaded_by("import latewood.cli.main") & (set(HEAVY) - {"click"})


@pytest.mark.parametrize("name", ["asyncio", "ctypes"])
def test_a_heavy_import_is_noticed(name: str) -> None:
    assert name in loaded_by(f"import {name}")


COMMANDS: Final = {
    "status": "lake",
    "db ls": "lake",
    "db info": "lake/clicks",
    "append": "lake/clicks",
    "jobs ls": "lake",
    "chunks ls": "lake",
    "readers ls": "lake/clicks",
    "flush": "lake",
}
"""Commands that read and write no chunk, and what they are given."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("imports")
    loaded_by_command("db", "create", directory / "lake", "clicks")
    return directory


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_reads_no_chunk_loads_no_arrow(home: Path, name: str) -> None:
    loaded = loaded_by_command(*name.split(), home / COMMANDS[name])
    assert "lmdb" in loaded
    assert not loaded & {"numpy", "pandas", "pyarrow", "pyspark", "rich"}


def test_a_command_that_reads_records_loads_arrow(home: Path) -> None:
    loaded_by_command("append", home / "lake" / "clicks")  # Of a database without records there is nothing to read.
    assert "pyarrow" in loaded_by_command("cat", home / "lake" / "clicks")


def test_importing_the_runtime_loads_no_arrow() -> None:
    assert "pyarrow" not in loaded_by("import latewood.runtime")
