"""A process that appends batches as fast as it can: `python -m tests.kernel.flood KERNEL FILE BATCHES BATCH`."""

import importlib
import mmap
import sys
from pathlib import Path

from tests.kernel.echo import MODULES
from tests.kernel.packing import appender, record_bytes

PAYLOAD = b"12345678"


def file_bytes(batches: int, batch: int) -> int:
    """Return how large the file must be."""
    return batches * batch * record_bytes(len(PAYLOAD)) + 24


def main(name: str, path: str, batches: int, batch: int) -> None:
    """Append the batches."""
    kernel = importlib.import_module(MODULES[name])
    with Path(path).open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        writer = appender(kernel, mapping)
        for _ in range(batches):
            assert writer.append_many([PAYLOAD] * batch, 0, 0, None) == batch
        writer.release()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
