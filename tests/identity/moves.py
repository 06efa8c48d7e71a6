"""Events that make the path lead elsewhere while a program has the directory open."""

import os
import shutil
from collections.abc import Callable
from typing import Final

from latewood.errors import Locked
from tests.identity.book import Wrong
from tests.identity.scene import Scene


def chdir(scene: Scene) -> None:
    """The program changes its directory; it has opened a relative path."""
    (scene.home / "cellar").mkdir()
    os.chdir(scene.home / "cellar")


def moved(scene: Scene) -> None:
    """The directory gets another name."""
    scene.path.rename(scene.elsewhere)
    scene.original, scene.there, scene.stops, scene.refuses = scene.elsewhere, None, True, True


def moved_and_empty(scene: Scene) -> None:
    """An empty directory takes its place."""
    moved(scene)
    scene.path.mkdir()


def moved_and_another(scene: Scene) -> None:
    """Another one takes its place."""
    moved(scene)
    scene.there = scene.subject.make(scene.path, scene.chance)


def moved_and_older(scene: Scene) -> None:
    """An older copy takes its place."""
    moved(scene)
    _restore(scene)


def deleted(scene: Scene) -> None:
    """The directory is deleted."""
    scene.delete(scene.path)
    scene.original, scene.there, scene.stops, scene.refuses = None, None, True, True


def deleted_and_another(scene: Scene) -> None:
    """It is deleted, and another one is made under its name; the inode may be the same."""
    deleted(scene)
    scene.there = scene.subject.make(scene.path, scene.chance)


def deleted_and_older(scene: Scene) -> None:
    """It is deleted, and an older copy is put in its place."""
    deleted(scene)
    _restore(scene)


def link_to_another(scene: Scene) -> None:
    """The link in its path is set anew, to another one."""
    book = scene.subject.make(scene.home / "second", scene.chance)
    (scene.home / "link").symlink_to(scene.home / "second")
    os.replace(scene.home / "link", scene.path)  # noqa: PTH105 - as `ln -sfn` and `mv -T` do
    scene.original, scene.there, scene.stops, scene.refuses = scene.home / "first", book, True, True


def lock_removed(scene: Scene) -> None:
    """Somebody removes the lock file, and starts a second program."""
    (scene.path / ("catalog.mdb.writer" if scene.subject.name == "store" else "writer.lock")).unlink()
    scene.stops, scene.refuses = True, scene.subject.name != "store"  # A store looks at it with each commit.
    try:
        second = scene.begin()
    except Locked:
        return
    second.close()
    raise Wrong("a second program was let in because the lock file was removed")


def _restore(scene: Scene) -> None:
    if scene.older.exists():
        shutil.copytree(scene.older, scene.path)
        scene.there = scene.older_book


MOVES: Final[dict[str, Callable[[Scene], None]]] = {
    "chdir": chdir,
    "moved": moved,
    "moved, empty": moved_and_empty,
    "moved, another": moved_and_another,
    "moved, older copy": moved_and_older,
    "deleted": deleted,
    "deleted, another": deleted_and_another,
    "deleted, older copy": deleted_and_older,
    "link to another": link_to_another,
    "lock removed": lock_removed,
}
