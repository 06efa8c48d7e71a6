"""What runs out: descriptors, memory, and a disk that fails while something is being closed."""

import errno
import os
import random
import resource
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final
from unittest.mock import patch

from latewood.errors import DiskFull, JobFailed, Poisoned, StorageError, UnavailableError
from latewood.fs.file import PosixFile
from latewood.fs.posix import PosixFS
from tests.log.low_memory import PAGE, Starved


class Limit(AbstractContextManager[None]):
    """Something that there is too little of within the block."""

    while_closing = False

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def allows(self, error: BaseException) -> bool:
        """Say whether a program may meet this error."""
        return isinstance(error, UnavailableError | Poisoned | JobFailed)


class Descriptors(Limit):
    """A few more files can be opened, and no more."""

    def __enter__(self) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_NOFILE)
        probe = os.open(os.devnull, os.O_RDONLY)  # The lowest that is free.
        os.close(probe)
        resource.setrlimit(resource.RLIMIT_NOFILE, (probe + self._chance.randrange(8), self._before[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, self._before)


class Memory(Limit):
    """A little more memory can be had, and no more."""

    def __enter__(self) -> None:
        room = self._chance.choice([0, 1, 4, 16, 64, 256, 1024, 4096])
        self._starved = Starved(room * PAGE)

    def __exit__(self, *_: object) -> None:
        self._starved.end()

    def allows(self, error: BaseException) -> bool:
        """Say whether a program may meet this error."""
        return isinstance(error, MemoryError) or super().allows(error)


class FailingClose(Limit):
    """One call to the disk fails, or all from one on."""

    while_closing = True
    calls: Final = (
        *((PosixFile, name) for name in ("pwrite", "sync", "sync_and_note", "allocate", "truncate", "map")),
        *((PosixFS, name) for name in ("open", "rename", "rename_new", "remove", "sync_directory", "make_directory")),
    )

    def __enter__(self) -> None:
        self._left = self._chance.randrange(12)
        self._is_lasting = self._chance.random() < 0.5
        self._error = self._chance.choice([errno.ENOSPC, errno.EIO])
        self._mutex = threading.Lock()
        self._patches = ExitStack()
        for kind, name in self.calls:
            self._patches.enter_context(patch.object(kind, name, self._failing(getattr(kind, name))))

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def _failing(self, whole: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            with self._mutex:
                self._left -= 1
                fails = self._left == -1 or (self._left < 0 and self._is_lasting)
            if fails:
                text = os.strerror(self._error)
                raise (DiskFull if self._error == errno.ENOSPC else StorageError)(f"the campaign says: {text}")
            return whole(*arguments, **options)

        return call


LIMITS: Final[dict[str, type[Limit]]] = {
    "descriptors": Descriptors,
    "memory": Memory,
    "close fails": FailingClose,
}
