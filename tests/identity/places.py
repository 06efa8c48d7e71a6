"""A path, the directories that it leads to one after the other, and what happens to them behind a program's back.

A `Directory` is one directory, whatever its path is by now, and what must be in it.  Scenes say what that is: a model,
which can be copied as the files are.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

Model = TypeVar("Model")


class Violation(AssertionError):
    """Something was acknowledged and is not there, or is in another directory, or was read from one."""


def require(truth: object, *reasons: object) -> None:
    if not truth:
        raise Violation(*reasons)


class Directory(Generic[Model]):
    """One directory: its number, where it is (None: deleted), and what must be in it."""

    def __init__(self, number: int, path: Path, model: Model) -> None:
        self.number, self.model = number, model
        self.path: Path | None = path

    def __repr__(self) -> str:
        return f"<directory {self.number} at {self.path}>"


class Place(Generic[Model]):
    """A path that programs are given, and the operator of the machine, who moves what it leads to."""

    def __init__(
        self,
        home: Path,
        name: str,
        chance: random.Random,
        new_model: Callable[[], Model],
        copied: Callable[[Model], Model],
    ) -> None:
        """`home` is there.  By chance the path is a link, to directories beside it."""
        self.home, self.path, self.is_link = home, home / name, chance.random() < 0.3
        self._chance, self._new_model, self._copied = chance, new_model, copied
        self.directories: list[Directory[Model]] = []
        self.named: Directory[Model] | None = None
        """What the path leads to now."""
        self.stash: list[Directory[Model]] = []
        """Copies that were taken, to be restored some time."""
        self.count = 0

    @property
    def own(self) -> list[Directory[Model]]:
        """The directories that are somewhere on the disk, without the copies that were never put in place."""
        return [one for one in self.directories if one.path is not None]

    def make(self) -> Directory[Model]:
        """Have an empty directory where the path leads, as a program makes one."""
        require(self.named is None, "there is a directory")
        target = self._free() if self.is_link else self.path
        target.mkdir()
        return self._put(self._known(target, self._new_model()))

    # -- events -------------------------------------------------------------------------------------------

    def events(self) -> list[Callable[[], None]]:
        """Return what can happen now."""
        events = [self.put_back] if self.named is None else [self.move, self.delete, self.copy]
        if self.named is not None:
            events += [self.swap, self.restore_a_copy, self.delete_and_restore]
        return events + ([self.restore_an_older_copy] if self.stash else [])

    def move(self) -> None:
        """Take the directory away."""
        directory, self.named = self.named, None
        assert directory is not None
        if self.is_link:
            self.path.unlink()
        else:
            directory.path = self.path.rename(self._free())

    def put_back(self) -> None:
        """Put some directory in the place, if there is one."""
        away = [one for one in self.own if one is not self.named and one not in self.stash]
        if away:
            self._put(self._chance.choice(away))

    def swap(self) -> None:
        """Put another directory in the place of the one that is there, or a new one."""
        before = self.named
        self.move()
        away = [one for one in self.own if one is not before and one not in self.stash]
        if away and self._chance.random() < 0.5:
            self._put(self._chance.choice(away))
        else:
            self.make()

    def delete(self) -> None:
        """Delete the directory: what was in it is gone, and that is nobody's mistake."""
        directory = self.named
        assert directory is not None
        self.move()
        assert directory.path is not None
        shutil.rmtree(directory.path)
        directory.path = None

    def copy(self) -> None:
        """Take a copy, to be restored some time."""
        assert self.named is not None
        self.stash.append(self._copy_of(self.named))

    def restore_a_copy(self) -> None:
        """Put a copy in the place of what it is a copy of."""
        assert self.named is not None
        made = self._copy_of(self.named)
        self.move()
        self._put(made)

    def delete_and_restore(self) -> None:
        """Delete the directory, then make it anew from a copy: the inode may well be the same number."""
        assert self.named is not None
        made = self._copy_of(self.named)
        self.delete()
        where = made.path
        assert where is not None
        if not self.is_link:
            shutil.copytree(where, self.path)
            shutil.rmtree(where)
            made.path, self.named = self.path, made
        else:
            self._put(made)

    def restore_an_older_copy(self) -> None:
        """Put a copy in the place that was taken before."""
        if self.named is not None:
            self.move()
        self._put(self.stash.pop(self._chance.randrange(len(self.stash))))

    # -- inside -------------------------------------------------------------------------------------------

    def _put(self, directory: Directory[Model]) -> Directory[Model]:
        assert directory.path is not None
        if self.is_link:
            self.path.symlink_to(directory.path.name)
        elif directory.path != self.path:
            directory.path = directory.path.rename(self.path)
        self.named = directory
        return directory

    def _copy_of(self, directory: Directory[Model]) -> Directory[Model]:
        assert directory.path is not None
        target = self._free()
        shutil.copytree(directory.path, target)
        return self._known(target, self._copied(directory.model))

    def _known(self, path: Path, model: Model) -> Directory[Model]:
        directory = Directory(self.count, path, model)
        self.directories.append(directory)
        return directory

    def _free(self) -> Path:
        self.count += 1
        return self.home / f"{self.path.name}-{self.count}"
