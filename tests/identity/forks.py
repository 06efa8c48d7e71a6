"""What a forked child does with what its parent has open.  The parent must notice nothing of it."""

import gc
import os
import signal
from collections.abc import Callable
from typing import Final

from latewood.errors import Forked, Locked
from tests.forking import fork, in_child
from tests.identity.book import Wrong, require
from tests.identity.scene import Scene
from tests.identity.subjects import Program


def uses(scene: Scene, program: Program) -> None:
    """Use what was inherited: every call refuses."""
    del scene
    for act in (program.write, program.write):
        try:
            act()
        except Forked:
            continue
        raise Wrong("a forked child wrote with what its parent had opened")


def reads(scene: Scene, program: Program) -> None:
    """Open it again to read, and find everything that the parent was told."""
    del program
    scene.book.grows = True
    scene.book.check(scene.subject.read(scene.path))


def locks(scene: Scene, program: Program) -> None:
    """Open it again to write, which the parent does."""
    del program
    try:
        scene.begin().close()
    except Locked:
        return
    raise Wrong("a forked child opened to write what its parent has open")


def closes(scene: Scene, program: Program) -> None:
    """Close what was inherited, and read."""
    program.close()
    reads(scene, program)


def drops(scene: Scene, program: Program) -> None:
    """Let everything that was inherited be finalised."""
    vars(program).clear()
    gc.collect()
    reads(scene, program)


def forks(scene: Scene, program: Program) -> None:
    """Fork once more."""
    in_child(lambda: closes(scene, program))
    uses(scene, program)


def dies(scene: Scene, program: Program) -> None:
    """End in the middle."""
    del scene, program
    os.kill(os.getpid(), signal.SIGKILL)


def fork_once(scene: Scene, program: Program, work: Callable[[Scene, Program], None]) -> None:
    """Fork a child that does something, and wait for its end."""
    if work is not dies:
        in_child(lambda: work(scene, program))
        return
    if (child := fork()) == 0:  # pragma: no cover - another process
        dies(scene, program)
    require(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, "the child did not die")


FORKS: Final[dict[str, Callable[[Scene, Program], None]]] = {
    "fork, uses": uses,
    "fork, reads": reads,
    "fork, locks": locks,
    "fork, closes": closes,
    "fork, drops": drops,
    "fork, forks": forks,
    "fork, dies": dies,
}
