"""Every sync in the source is needed: forgetting it breaks a promise, or there is a reason why not.

A site is a function and the kind of file that it syncs.  Each of them is dropped in turn, and something in a scene
must then go wrong: after a power cut alone, or after the death of a program and a power cut, where the program dies
before an operation, or within one that makes a directory.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

import pytest

import latewood
from latewood import LatewoodError
from tests.crash.mortal import MortalFS
from tests.crash.scenes import SCENES, bounds_of, cuts
from tests.crash.survivor import Seen, Violation, open_again, violation
from tests.crash.test_death import die, rehearse


class Catch(NamedTuple):
    """What finds out that a sync is missing."""

    how: Literal["cut", "death", "death within"]
    scene: str
    states: int = 30
    """Tried at each step; more where several things must be lost together."""


CAUGHT: Final = {
    "CheckpointFile.__init__: sync_directory /q": Catch("cut", "batch across sectors", 200),
    "CheckpointFile.write: sync index.meta": Catch("cut", "batch across sectors after a roll", 200),
    "DualSlot._write_pointer: sync manifest.current": Catch("cut", "create"),
    "DualSlot.publish: sync_directory /q": Catch("cut", "create"),
    "DualSlot.write: sync manifest.N": Catch("cut", "create"),
    "DualSlot.write: sync_directory /q": Catch("cut", "create"),
    "ManifestStore.secure: sync_directory /q": Catch("death", "roll"),
    "Queue._reader_lock: sync_directory readers": Catch("death", "reader"),
    "Queue.remove_reader: sync_directory readers": Catch("cut", "remove reader"),
    "SegmentReader.sync: sync segments/N.q": Catch("cut", "reader beside"),
    "SegmentWriter.seal: sync segments/N.q": Catch("cut", "roll"),
    "SegmentWriter.sync_and_note: sync index.meta": Catch("cut", "batch across sectors", 200),
    "SegmentWriter.sync_and_note: sync segments/N.q": Catch("cut", "create"),
    "_cut: sync segments/N.q": Catch("death", "create"),
    "_repair: sync segments/N.q": Catch("death", "roll"),
    "_write_slot: sync readers/N.meta": Catch("cut", "reader"),
    "begin_first_segment: make_directory segments": Catch("cut", "create"),
    "create_log: sync_directory /": Catch("death within", "create"),
    "replace_file: sync readers/N.meta.tmp": Catch("cut", "reader"),
    "replace_file: sync identity.tmp": Catch("cut", "create"),
    "replace_file: sync_directory readers": Catch("cut", "reader"),
    "sync_cursors: sync readers/N.meta": Catch("death", "cleanup"),
    "sync_cursors: sync_directory readers": Catch("death", "remove the slower reader"),
    "sync_directories: sync_directory segments": Catch("death within", "create"),
    "sync_directories: sync_directory segments/day": Catch("cut", "create"),
    "sync_directories: sync_directory segments/month": Catch("death within", "roll into a new month"),
    "write_header: sync segments/N.q": Catch("cut", "cohort"),
    "write_header: sync segments/next.q": Catch("cut", "create"),
}

JUSTIFIED: Final = {
    "CheckpointFile.__init__: sync index.meta": (
        "the file is empty; its name is made durable, and its bytes are synced when there are any"
    ),
    "Log._open_to_write: make_directory /q": (
        "`create_log` syncs the same directory, in case the program that made it died; "
        "kept because `make_directory` is durable wherever it is called"
    ),
    "Queue._reader_lock: make_directory readers": "the log's directory is synced right after, for the same reason",
    "Queue._reader_lock: sync_directory /q": (
        "only for a reader that died while it made `readers`, beside a writer that lives: "
        "see test_death.py, where this is tried"
    ),
    "Writer.remove_files: sync_directory segments/day": (
        "a removed segment that comes back is not in the manifest, and the next cleanup removes it again"
    ),
    "begin_segment: make_directory segments/day": "`sync_directories` syncs its parent, before the manifest names it",
    "begin_segment: make_directory segments/month": "as above",
    "prepare: sync segments/next.q": (
        "the header's sync, later, makes the zeros durable too; this one, in the background, "
        "keeps the roll from waiting for the disk to allocate"
    ),
    "replace_file: sync segments/current.sealed.tmp": "it is advisory: what it says is in the manifest, or a footer",
    "replace_file: sync_directory /q": "the sync of the manifest's slot or pointer, later, makes this name durable too",
    "replace_file: sync_directory segments": (
        "in a roll the same directory is synced again before the manifest; anywhere else `current.sealed` is advisory"
    ),
}

_LAYERS_OF_A_LOG: Final = ("latewood.fs", "latewood.segment", "latewood.log", "latewood.queue")
"""What the scenes are about.  The layers above cut their own steps: tests/archive, tests/jobs/handlers, tests/spark."""
_SOURCE: Final = Path(latewood.__file__).parent
_SYNCS: Final = frozenset({"sync", "sync_and_note", "sync_directory"})
_ELSEWHERE: Final = {
    "latewood.fs.disk:_sync_ns": "measures what a sync costs",
    "latewood.fs.disk:median_sync_ns": "as above",
    "latewood.fs.posix:PosixFS.make_directory": "the file system itself: `make_directory` is durable",
    "latewood.log.durability:Durability._sync": "passes on to SegmentWriter.sync_and_note",
    "latewood.log.log:Log.make_durable": "passes on to Stream.sync",
    "latewood.log.stream:Stream.sync": "passes on to SegmentReader.sync",
    "latewood.log.rebuild:_write": "test_rebuild.py cuts the power in it",
    "latewood.log.rebuild:_forget_lost_checkpoint": "as above: `_write` calls it",
}
"""Functions that sync, but not on the file system of a scene."""


def caught(site: str, catch: Catch) -> Exception | None:
    """Return what goes wrong in a scene if this sync is dropped, on the disk of the scene and on all that survive."""
    return _cut(site, catch) if catch.how == "cut" else _death(site, catch)


def _cut(site: str, catch: Catch) -> Exception | None:
    scene, fs = SCENES[catch.scene], MortalFS()
    fs.dropped_site = site
    with bounds_of(scene):
        for _, survivor in cuts(scene, fs, catch.states):
            assert isinstance(survivor, MortalFS)
            survivor.dropped_site = site
            if error := violation(survivor, scene.options):
                return error
    return None


def _death(site: str, catch: Catch) -> Exception | None:
    scene, within, seen = SCENES[catch.scene], catch.how == "death within", Seen()
    with bounds_of(scene):
        rehearsal = rehearse(scene)
        for number in rehearsal.directories if within else range(1, rehearsal.operations + 1):
            try:
                die(scene, number, 6, seen, within=within, dropped_site=site)
            except (Violation, LatewoodError) as error:
                return error
    return None


@pytest.mark.parametrize("site", CAUGHT)
def test_a_sync_that_is_dropped_is_missed(site: str) -> None:
    assert caught(site, CAUGHT[site]), "either it is not needed, or no test needs it"


@pytest.mark.parametrize("site", JUSTIFIED)
def test_a_sync_that_is_said_not_to_be_needed_is_not(site: str, campaign: bool) -> None:  # noqa: FBT001
    names = list(SCENES) if campaign else ["create", "roll", "cleanup"]
    hows: tuple[Literal["cut", "death", "death within"], ...] = ("cut", "death within", "death")
    for catch in (Catch(how, name, 12) for name in names for how in hows[: None if campaign else 2]):
        error = caught(site, catch)
        assert error is None, f"take it off the list: {catch} finds {error!r}"


def sites_seen() -> set[str]:
    """Every site that the scenes come to, also when what they leave is opened."""
    seen: set[str] = set()
    for scene in SCENES.values():
        fs = MortalFS()
        with bounds_of(scene):
            for number, (_, survivor) in enumerate(cuts(scene, fs, 5)):
                assert isinstance(survivor, MortalFS)
                if number % 7 == 0:
                    open_again(survivor, scene.options)
                    seen |= survivor.sites
        seen |= fs.sites
    return seen


def test_every_sync_of_the_scenes_is_listed() -> None:
    assert not CAUGHT.keys() & JUSTIFIED.keys()
    assert sites_seen() == CAUGHT.keys() | JUSTIFIED.keys()


def functions_that_sync() -> set[str]:
    """Every function in the source that calls `sync` or `sync_directory`, as `module:Class.function`."""
    found = set()
    for path in sorted(_SOURCE.rglob("*.py")):
        module = ".".join(["latewood", *path.relative_to(_SOURCE).with_suffix("").parts])
        if module.startswith(_LAYERS_OF_A_LOG):
            found |= {f"{module}:{name}" for name in _functions_that_sync(ast.parse(path.read_text()), "")}
    return found


def _functions_that_sync(node: ast.AST, prefix: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, ast.FunctionDef | ast.ClassDef)
        inner = f"{prefix}{child.name}." if isinstance(child, ast.FunctionDef | ast.ClassDef) else prefix
        if isinstance(child, ast.FunctionDef) and any(_is_sync(call) for call in ast.walk(child)):
            yield inner.removesuffix(".")
        elif named or not isinstance(child, ast.expr):
            yield from _functions_that_sync(child, inner)


def _is_sync(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SYNCS


def test_every_sync_of_the_source_is_in_a_scene() -> None:
    listed = {site.partition(":")[0] for site in CAUGHT.keys() | JUSTIFIED.keys()}
    missing = {name for name in functions_that_sync() if name.partition(":")[2] not in listed}
    assert missing == _ELSEWHERE.keys()
