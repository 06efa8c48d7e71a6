"""Bugs that mix directories, logs and programs up.  Each is planted for the length of one round."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

from latewood.fs.locks import PosixLock
from latewood.fs.posix import PosixFS


class Bug(NamedTuple):
    """What is replaced, by what, and the rounds in which that shows: subject, event and company."""

    replaced: dict[str, Callable[..., object]]
    rounds: tuple[tuple[str, str, str], ...]
    is_rare: bool = False
    """Whether it takes several seeds, and so too long for an ordinary run of the tests."""

    def planted(self) -> AbstractContextManager[object]:
        """Plant it."""
        stack = ExitStack()
        for target, replacement in self.replaced.items():
            stack.enter_context(mock.patch(target, replacement))
        return stack


def nothing(*_: object, **__: object) -> None:
    """Do nothing, or find nothing wrong."""


def as_given(_: PosixFS, path: Path) -> Path:
    return path


def lock_the_file_alone(fs: PosixFS, path: Path, *, whole: bool = True) -> PosixLock:
    """Lock a file that anybody can remove, and never look for it again."""
    del whole
    return fs.lock(path)


def at_once(_: Any, step: Callable[[], object]) -> None:
    """Let the first failure through, and leave the rest open."""
    step()


def replacing(fs: PosixFS, source: Path, target: Path) -> None:
    fs.rename(source, target)


BUGS: Final = {
    "the path is never compared": Bug(
        {"latewood.fs.posix.PosixFS.check_root": nothing},
        (("log", "moved, another", "idle"), ("store", "moved, older copy", "writers"), ("log", "moved", "idle")),
    ),
    "a stranger is accepted by readers": Bug(
        {"latewood.queue.ahead.stranger_reason": nothing}, (("log", "closed, made anew", "idle"),)
    ),
    "a stranger is accepted by queries": Bug(
        {f"latewood.spark.{module}.stranger_reason": nothing for module in ("standing", "positions", "pieces")},
        (("checkpoint", "closed, made anew", "idle"),),
    ),
    "where a log went back to is not looked at": Bug(
        {"latewood.queue.ahead.lost_from": nothing, "latewood.queue.ahead.stranger_reason": nothing},
        (("log", "closed, older copy", "idle"),),
        is_rare=True,
    ),
    "the lock file alone is locked": Bug(
        {"latewood.fs.posix.PosixFS.lock_root": lock_the_file_alone},
        (("log", "lock removed", "idle"), ("store", "lock removed", "writers")),
    ),
    "paths stay relative": Bug(
        {"latewood.fs.posix.PosixFS.absolute": as_given}, (("log", "chdir", "writers"), ("store", "chdir", "idle"))
    ),
    "a shard behind its chunks is not noticed": Bug(
        {"latewood.runtime.shard_log.log_behind": nothing},
        (("store", "older shards", "idle"), ("store", "shard lost", "idle")),
    ),
    "a close stops at the first failure": Bug(
        {"latewood.closing.Closing.__call__": at_once},
        (("store", "close fails", "idle"),),
        is_rare=True,
    ),
    "a child keeps the log that it inherits": Bug(
        {
            f"latewood.{name}.abandon_after_fork": nothing
            for name in ("log.log.Log", "queue.queue.Queue", "fs.root.Root", "fs.locks.PosixLock")
        },
        (("log", "fork, uses", "writers"),),
    ),
    "a newer segment is not looked for": Bug(
        {
            "latewood.log.opening.check_no_newer_segment": nothing,
            "latewood.fs.posix.PosixFS.rename_new": replacing,
        },
        (("log", "older copy over it", "idle"),),
    ),
}
