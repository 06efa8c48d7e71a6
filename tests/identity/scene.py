"""One round's stage: a directory with a subject, an older copy of it, and what an event makes of them."""

import random
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.identity.book import Book, Wrong
from tests.identity.subjects import Program, Subject

STEPS_MAX: Final = 8
_TRIES_MAX: Final = 1000


class Scene:
    """A directory at `path`, the program that has it open, and where things are after an event."""

    def __init__(self, home: Path, subject: Subject, chance: random.Random, *, by_link: bool) -> None:
        self.home, self.subject, self.chance = home, subject, chance
        self.path = home / "it"
        self.elsewhere, self.older = home / "elsewhere", home / "older"
        self.book = Book(subject.name)
        self.original: Path | None = self.path
        """Where the directory is that the program opened; None: it was deleted."""
        self.there: Book | None = self.book
        """What is at the path now; None: nothing is, or nothing that is a subject."""
        self.stops = False
        """Whether the program may stop."""
        self.refuses = False
        """Whether it must: nothing is acknowledged any more."""
        self.offsets: list[str] = []
        """The checkpoint of a query that has read all of the directory that was there."""
        if by_link:
            (home / "first").mkdir()
            self.path.symlink_to(home / "first")
        self._age()

    def _age(self) -> None:
        """Write something, and keep a copy of the closed directory."""
        with closing(self.subject.begin(self.path, self.book, self.chance)) as program:
            for _ in range(self.chance.randint(1, STEPS_MAX)):
                program.write()
                self.sometimes(program.use)
        if self.path.exists():
            shutil.copytree(self.path, self.older)
        self.older_book = self.book.copy()

    def sometimes(self, act: Callable[[], object]) -> None:
        """Do something in one of three cases."""
        if self.chance.random() < 0.34:
            act()

    def begin(self, path: Path | None = None) -> Program:
        """Start the program."""
        return self.subject.begin(path or self.path, self.book, self.chance)

    def state(self) -> dict[str, bytes]:
        """Return every file at the path, but for those in which readers, who may be here, leave their traces."""
        traces = ("wake", "catalog.mdb-lock")
        files = (path for path in sorted(self.path.rglob("*")) if path.is_file() and path.name not in traces)
        return {str(path.relative_to(self.path)): path.read_bytes() for path in files}

    def delete(self, path: Path) -> None:
        """Delete a directory in which others make files meanwhile."""
        for _ in range(_TRIES_MAX):
            shutil.rmtree(path, ignore_errors=True)
            if not path.exists():
                return
        raise Wrong(f"{path} cannot be deleted: files are made in it again and again")
