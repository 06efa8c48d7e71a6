"""A disk that needs no sync, for tests that make many stores; where there is none, any will do."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - named after the test, and gone after it


@contextmanager
def quick_disk(directory: Path) -> Iterator[Path]:
    """Give a directory that is empty, and gone afterwards."""
    if not _MEMORY.is_dir():
        yield directory
        return
    made = Path(tempfile.mkdtemp(prefix=f"latewood-{directory.name}-", dir=_MEMORY))
    try:
        yield made
    finally:
        shutil.rmtree(made)
