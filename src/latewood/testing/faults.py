"""Errors on demand: which operation of a test file system fails, from when on."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

OPERATIONS: Final = frozenset(
    {
        "allocate",
        "link",
        "list",
        "lock",
        "make_directory",
        "map",
        "open",
        "pread",
        "pwrite",
        "remove",
        "rename",
        "sync",
        "sync_directory",
        "truncate",
    }
)
"""What can fail.  A misspelt name would make a test pass by testing nothing, so others are refused."""


@dataclass(slots=True)
class _Fault:
    operation: str
    path_suffix: str
    error: Exception
    matches_left: int


class Faults:
    """The planned failures of one file system.  Any thread may call it."""

    def __init__(self) -> None:
        self._planned: list[_Fault] = []
        self._mutex = threading.Lock()

    def plan(self, operation: str, path_suffix: str, error: Exception, after: int) -> None:
        """Let `after` matching operations pass, then raise `error` from every one until `heal`."""
        if operation not in OPERATIONS:
            raise ValueError(f"no operation {operation!r}; there are {', '.join(sorted(OPERATIONS))}")
        with self._mutex:
            self._planned.append(_Fault(operation, path_suffix, error, after))

    def heal(self) -> None:
        """Forget every planned failure."""
        with self._mutex:
            self._planned.clear()

    def check(self, operation: str, *paths: Path) -> None:
        """Raise what was planned for this operation on any of these paths."""
        if self._planned:
            with self._mutex:
                for fault in self._planned:
                    self._meet(fault, operation, paths)

    def _meet(self, fault: _Fault, operation: str, paths: tuple[Path, ...]) -> None:
        if fault.operation != operation or not any(str(path).endswith(fault.path_suffix) for path in paths):
            return
        if fault.matches_left:
            fault.matches_left -= 1
            return
        raise fault.error
