"""A round of the campaign: one subject, one event, one company, drawn from a seed; and what must hold afterwards."""

import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Container
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from latewood.errors import (
    AnotherLog,
    ClosedError,
    CorruptError,
    DataLost,
    JobFailed,
    LatewoodError,
    ManifestCorrupted,
    NotFoundError,
    OutcomeUnknown,
    UnavailableError,
)
from tests.identity import logs, stores
from tests.identity.book import Wrong, require
from tests.identity.closed import CLOSED, OF_LOGS, OF_NODES, OF_STORES, restored_older
from tests.identity.company import COMPANIES, Company
from tests.identity.forks import FORKS, fork_once
from tests.identity.limits import LIMITS, Limit
from tests.identity.moves import MOVES
from tests.identity.scene import STEPS_MAX, Scene
from tests.identity.subjects import SUBJECTS, Program

REPLACED: Final = (ClosedError,)
"""What a program may meet whose directory is another: DirectoryReplaced first, and that it is closed afterwards."""
BACKED_OFF: Final = (JobFailed,)
"""A job that has failed waits for a while before it is tried again."""
OF_ARCHIVES: Final = (ClosedError, JobFailed, CorruptError, NotFoundError, UnavailableError)
"""What a store may meet whose archive is another: a job fails, and a chunk that was only there is missed."""

# A query opens the log anew for each batch, and may find one that is being deleted, or made.
ALLOWED: Final[dict[str, tuple[type[Exception], ...]]] = {
    "log": REPLACED,
    "checkpoint": (*REPLACED, AnotherLog, ManifestCorrupted, DataLost, NotFoundError),
    "store": (*REPLACED, JobFailed),
    "archive": OF_ARCHIVES,
    "node": (ClosedError, UnavailableError, OutcomeUnknown, NotFoundError),
}

WHILE_DELETED: Final = (CorruptError, NotFoundError)
"""What company may meet too: files are deleted one by one, and a thread may look in between."""


@dataclass
class Outcome:
    """What a round has compared, and which errors it has met."""

    subject: str
    event: str
    company: str
    checked: int = 0
    errors: Counter[str] = field(default_factory=Counter)


def draw(seed: int) -> tuple[str, str, str]:
    """Return the subject, the event and the company of a round."""
    chance = random.Random(seed)
    subject = chance.choice(list(SUBJECTS))
    event = chance.choice([name for name in ALL if _is_for(subject, name)])
    company = chance.choice(COMPANIES) if event in MOVES or event in FORKS else "idle"
    return subject, event, "idle" if company == "jobs" and subject not in ("store", "archive") else company


def _is_for(subject: str, event: str) -> bool:
    if event in TALES:
        return subject in TALES[event]
    if subject in NOT_OF:
        return event not in NOT_OF[subject]
    others: dict[str, Container[str]] = {
        "store": {**OF_LOGS, **OF_NODES},
        "checkpoint": {**OF_STORES, **OF_NODES, **GAPS},
    }
    return event not in others.get(subject, {**OF_STORES, **OF_NODES})


def play(seed: int, given: tuple[str, str, str] | None = None) -> Outcome:
    """Play the round of a seed, or another one with its chances.

    Raises:
        Wrong: a promise was broken.
    """
    subject, event, company = given or draw(seed)
    outcome = Outcome(subject, event, company)
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="latewood-identity-", dir=_quick()) as home:
        chance = random.Random(f"{seed}")
        if event in TALES:
            tally = TALES[event][subject](Path(home), chance)
            outcome.checked, outcome.errors["told"] = tally.acknowledged, tally.told
            return outcome
        scene = Scene(Path(home), SUBJECTS[subject], chance, by_link=event == "link to another")
        try:
            EVENTS[event](scene, event, outcome)
        finally:
            os.chdir(before)
    return outcome


# -- the kinds of events ---------------------------------------------------------------------------------------------


def _move(scene: Scene, event: str, outcome: Outcome) -> None:
    """The path comes to lead elsewhere while a program is at work."""
    is_relative = event == "chdir" or scene.chance.random() < 0.3
    if is_relative:
        os.chdir(scene.home)
    program = scene.begin(Path("it") if is_relative else scene.path)
    met: list[BaseException] = []
    company = Company(scene, program, outcome.company)
    try:
        company.start()
        for _ in range(scene.chance.randrange(STEPS_MAX)):
            program.write()
            scene.sometimes(program.use)
        MOVES[event](scene)
        after = scene.state()
        met += _go_on(scene, program)
    finally:
        company.stop()
        met += _errors_of(program.close)
    more = WHILE_DELETED if event.startswith("deleted") else ()
    _check_errors(scene, [error for error in company.errors if not isinstance(error, more)] + met, outcome)
    changed = _changed(after, scene.state())
    is_another = scene.original != scene.path and scene.stops
    require(not (changed and is_another), "files were written in a directory that the program never opened", changed)
    if event == "chdir":
        require(not list((scene.home / "cellar").iterdir()), "files were made in the current directory")
    _check_places(scene, outcome)


def _go_on(scene: Scene, program: Program) -> list[BaseException]:
    """Have the program go on for some steps; return what it meets."""
    met: list[BaseException] = []
    for _ in range(scene.chance.randint(2, STEPS_MAX)):
        act = program.use if scene.chance.random() < 0.3 else program.write
        errors = _errors_of(act)
        if act == program.write and scene.refuses and program.fails_as_a_whole:
            require(errors, "a program went on writing in a directory that is another")
        met += errors
    return met


def _check_places(scene: Scene, outcome: Outcome) -> None:
    """Read the directory that the program had, and the one that is at its path."""
    is_archive = scene.subject.name == "archive"
    if scene.original is not None:
        outcome.checked += scene.book.check(scene.subject.read(scene.original))
    elif is_archive:
        with suppress(LatewoodError):
            outcome.checked += scene.book.check(scene.subject.read(scene.path))
    if scene.there is not None and scene.there is not scene.book and not is_archive:
        outcome.checked += scene.there.check(scene.subject.read(scene.path))
        if scene.there is scene.older_book:
            restored_older(scene, outcome.errors)
    if scene.original is None:
        return
    if scene.original != scene.path and scene.chance.random() < 0.5:  # As the guide says: put it in its place.
        if scene.path.is_symlink():
            scene.path.unlink()
        elif scene.path.exists():
            scene.delete(scene.path)
        scene.original.rename(scene.path)
        scene.original = scene.path
    _check_goes_on(scene, outcome)


def _check_goes_on(scene: Scene, outcome: Outcome) -> None:
    """Start the program again where its directory is, write more, and read all of it."""
    assert scene.original is not None
    program = scene.begin(scene.original)
    try:
        for _ in range(2):
            program.write()
            with suppress(*BACKED_OFF if outcome.errors or scene.stops else ()):
                program.use()
    finally:
        program.close()
    outcome.checked += scene.book.check(scene.subject.read(scene.original))


def _fork(scene: Scene, event: str, outcome: Outcome) -> None:
    """A program forks while it is at work; the child does something, and the parent goes on."""
    program = scene.begin()
    company = Company(scene, program, outcome.company)
    try:
        company.start()
        for _ in range(scene.chance.randint(1, 3)):
            program.write()
            fork_once(scene, program, FORKS[event])
            program.write()
            scene.sometimes(program.use)
    finally:
        company.stop()
        met = company.errors + _errors_of(program.close)
    _check_errors(scene, met, outcome)
    _check_goes_on(scene, outcome)


def _limit(scene: Scene, event: str, outcome: Outcome) -> None:
    """Something runs out while a program is at work or is closed; afterwards there is enough again."""
    limit = LIMITS[event](scene.chance)
    program = scene.begin()
    met: list[BaseException] = []
    for _ in range(scene.chance.randrange(3)):
        program.write()
        program.use()
    if not limit.while_closing:
        with limit:
            for _ in range(scene.chance.randint(1, STEPS_MAX)):
                met += _errors_of(program.use if scene.chance.random() < 0.4 else program.write)
    with limit if limit.while_closing else nullcontext():
        met += _errors_of(program.close)
    if scene.chance.random() < 0.5:
        require(not _errors_of(program.close), "what was closed cannot be closed again")
    _check_errors(scene, met, outcome, limit)
    _check_goes_on(scene, outcome)


def _closed(scene: Scene, event: str, outcome: Outcome) -> None:
    """Something happens to the directory while nobody has it open."""
    program = scene.begin()
    try:
        for _ in range(scene.chance.randint(1, STEPS_MAX)):
            program.write()
            program.use()
    finally:
        program.close()
    outcome.checked += CLOSED[event](scene, outcome.errors)


def _check_errors(scene: Scene, met: list[BaseException], outcome: Outcome, limit: Limit | None = None) -> None:
    """Check that every error is one that the event allows."""
    for error in met:
        if limit is not None:
            is_allowed = limit.allows(error)
        else:
            is_allowed = scene.stops and isinstance(error, ALLOWED[scene.subject.name])
        if not is_allowed:
            raise Wrong(f"an error that the event does not allow: {type(error).__name__}: {error}") from error
        outcome.errors[type(error).__name__] += 1


def _changed(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _errors_of(act: Callable[[], object]) -> list[BaseException]:
    try:
        act()
    except Wrong:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is judged later
        return [error]
    return []


def _quick() -> Path | None:
    memory = Path("/dev/shm")  # noqa: S108 - a directory of its own is made there
    return memory if memory.is_dir() else None


EVENTS: Final[dict[str, Callable[[Scene, str, Outcome], None]]] = {
    **dict.fromkeys(MOVES, _move),
    **dict.fromkeys(FORKS, _fork),
    **dict.fromkeys(LIMITS, _limit),
    **dict.fromkeys(CLOSED, _closed),
}
NOT_OF: Final[dict[str, set[str]]] = {
    "archive": {"link to another", "lock removed", *CLOSED, "memory"},
    "node": {"link to another", "lock removed", *FORKS, *OF_LOGS, *OF_STORES, "memory"},
}
"""What would happen to the store of an archive as well, which has rounds of its own; and what no node does."""
GAPS: Final = dict.fromkeys(("older segments", "older copy over it"))
"""What may leave a gap, which a new query meets as well."""
TALES: Final[dict[str, dict[str, logs.Play]]] = {
    "one after another": {"log": logs.play, "store": stores.play},
    "partly restored": {"log": logs.play_partly_restored},
    "name taken": {"log": logs.play_name_taken},
    "opened meanwhile": {"store": stores.play_opened_meanwhile},
}
"""Rounds that are written by themselves: many events in a row, or one at a moment of its own."""
ALL: Final = [*EVENTS, *TALES]

__all__ = ["ALL", "Outcome", "draw", "play"]
