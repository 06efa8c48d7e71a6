"""Every command against files of a later program: each is refused, called damage by nothing, and left as it is.

The version of one file is raised by one where it stands.  A command either says which file it cannot read, exits 1 and
changes nothing, or has nothing to do with that file: then the tables name it.
"""

import json
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

import pytest

import latewood
from latewood.archive import chunk
from latewood.catalog.migrate import VERSIONS
from latewood.catalog.tables import RUNTIME_STATE, RuntimeRecord
from latewood.format.segment import FOOTER_SIZE
from tests.catalog.test_migrate import put_raw
from tests.cli.shell import ok, run
from tests.cli.store_kit import fill, make_store

REFUSAL: Final = " is not known to this Latewood; upgrade this program"
Argument = str | Path
Line = Callable[[Path], tuple[Argument, ...]]
Change = Callable[[Path], Path]


def raised(path: Path, at: int, size: int = 2) -> Path:
    """Raise a version that stands in a file."""
    data = bytearray(path.read_bytes())
    version = int.from_bytes(data[at : at + size], "little")
    data[at : at + size] = (version + 1).to_bytes(size, "little")
    path.write_bytes(data)
    return path


def raised_json(path: Path) -> Path:
    stored = json.loads(path.read_text())
    path.write_text(json.dumps(stored | {"version": stored["version"] + 1}) + "\n")
    return path


def slot(log: Path) -> Path:
    return log / f"manifest.{(log / 'manifest.current').read_bytes()[0]}"


def segments(log: Path) -> list[Path]:
    return sorted((log / "segments").rglob("*.q"))


def files_of(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and is_kept(path)}


def is_kept(path: Path) -> bool:
    return path.suffix not in (".lock", ".writer") and path.name not in ("wake", "catalog.mdb-lock", "node.lock")


class Scene:
    """A directory that is as it was before each command."""

    def __init__(self, root: Path, saved: Path) -> None:
        self.root, self._saved = root, saved
        shutil.copytree(root, saved)

    def restore(self, newer: Path, *, is_changed: bool) -> None:
        """Undo what a command has changed, or if that is nothing, only the later version."""
        if is_changed:
            shutil.rmtree(self.root)
            shutil.copytree(self._saved, self.root)
        else:
            shutil.copyfile(self._saved / newer.relative_to(self.root), newer)

    def outcome(self, change: Change, line: Line, name: str, may_change: Collection[str]) -> str:
        """Return what a command does about a file of a later version: "refused" or "runs", or else what is wrong.

        It may change files of these names before it comes to the other one.
        """
        newer = change(self.root / name)
        before = files_of(self.root)
        result = run(*line(self.root / name), stdin='{"key":"user-1","payload":"x"}\n')
        after = files_of(self.root)
        changed = [path for path in before if before[path] != after.get(path)]
        self.restore(newer, is_changed=before != after)
        if result.exit_code == 0:
            return "runs" if newer not in changed else f"changed {newer.name}"
        if result.exit_code != 1 or REFUSAL not in result.stderr:
            return f"exit {result.exit_code}: {result.output}{result.stderr}"
        left = [path.name for path in changed if path == newer or path.name not in may_change]
        return f"refused, but changed {left}" if left else "refused"


def check(
    scene: Scene,
    change: Change,
    lines: Mapping[str, Line],
    name: str,
    running: Collection[str],
    may_change: Collection[str] = (),
) -> None:
    """Compare what all commands do about a file with what they are to do."""
    found = {command: scene.outcome(change, line, name, may_change) for command, line in lines.items()}
    assert found == {command: "runs" if command in running else "refused" for command in lines}


# -- a log ------------------------------------------------------------------------------------------------

LOG_FILES: Final[dict[str, Change]] = {
    "manifest": lambda log: raised(slot(log), 4),
    "identity": lambda log: raised(log / "identity", 8),
    "header of a sealed segment": lambda log: raised(segments(log)[0], 8),
    "footer of a sealed segment": lambda log: raised(
        segments(log)[0], segments(log)[0].stat().st_size - FOOTER_SIZE + 8
    ),
    "header of the open segment": lambda log: raised(segments(log)[-1], 8),
    "position of a reader": lambda log: raised(log / "readers" / "billing.meta", 8),
    "checkpoint": lambda log: raised(log / "index.meta", 8),
    "pointer to the last sealed segment": lambda log: raised(log / "segments" / "current.sealed", 8),
}
LOG_LINES: Final[dict[str, Line]] = {
    "append": lambda log: ("append", log),
    "cat": lambda log: ("cat", log),
    "tail": lambda log: ("tail", log),
    "tail --reader": lambda log: ("tail", log, "--reader", "billing"),
    "info": lambda log: ("info", log),
    "segments": lambda log: ("segments", log),
    "inspect": lambda log: ("inspect", segments(log)[0]),
    "inspect the open one": lambda log: ("inspect", segments(log)[-1]),
    "readers ls": lambda log: ("readers", "ls", log),
    "readers lag": lambda log: ("readers", "lag", log),
    "readers seek": lambda log: ("readers", "seek", log, "billing", "--sequence", "0"),
    "readers rm": lambda log: ("readers", "rm", log, "billing", "--yes"),
    "cleanup": lambda log: ("cleanup", log, "--yes"),
    "seal": lambda log: ("seal", log),
    "verify": lambda log: ("verify", log),
    "verify --deep": lambda log: ("verify", log, "--deep"),
    "rebuild --dry-run": lambda log: ("rebuild", log, "--dry-run"),
    "rebuild": lambda log: ("rebuild", log, "--yes"),
    "rebuild --accept-loss": lambda log: ("rebuild", log, "--yes", "--accept-loss"),
    "rebuild --new-life": lambda log: ("rebuild", log, "--yes", "--new-life"),
    "picture": lambda log: ("picture", log, "--output", log.parents[1] / "picture.svg"),
}
LOOKS: Final = {"cat", "tail", "tail --reader", "info", "segments", "picture"}
INSPECTS: Final = {"inspect", "inspect the open one"}
READERS: Final = {"readers ls", "readers lag", "readers seek", "readers rm"}
REBUILDS: Final = {"rebuild --dry-run", "rebuild", "rebuild --accept-loss"}
OLD: Final = {"append", "tail", "tail --reader", "inspect the open one", "seal", "rebuild --new-life"}
"""What reads no sealed segment but the last."""
LOG_RUNS: Final[dict[str, set[str]]] = {
    "manifest": INSPECTS,
    "identity": LOOKS | INSPECTS | READERS,
    "header of a sealed segment": OLD | READERS - {"readers seek"},
    "footer of a sealed segment": OLD | READERS - {"readers seek"},
    "header of the open segment": {"inspect"},
    "position of a reader": LOOKS - {"tail --reader", "info", "picture"}
    | INSPECTS
    | REBUILDS
    | {"append", "seal", "rebuild --new-life"},
    "checkpoint": INSPECTS,
    "pointer to the last sealed segment": LOOKS | INSPECTS | READERS,
}
"""Commands that have nothing to do with a file."""


@pytest.fixture(scope="module")
def log_scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    home = tmp_path_factory.mktemp("versions")
    log = home / "work" / "log"
    ok("init", log, "--segment-bytes", "4KiB")
    for _ in range(3):
        ok("append", log, "--quiet", stdin="x\n" * 5)
        ok("seal", log)
    ok("append", log, "--quiet", stdin="x\n" * 5)
    with latewood.open(log) as opened, opened.reader("billing", start=0) as reader:
        reader.poll()
        reader.commit()
    return Scene(home / "work", home / "saved")


@pytest.mark.parametrize("file", LOG_FILES)
def test_every_command_refuses_a_later_file_of_a_log(log_scene: Scene, file: str) -> None:
    check(log_scene, LOG_FILES[file], LOG_LINES, "log", LOG_RUNS[file])


# -- a store ----------------------------------------------------------------------------------------------


def database(store: Path) -> Path:
    return next((store / "databases").glob("*-clicks"))


def shard(store: Path) -> Path:
    return database(store) / "shards" / "00000"


def noted(store: Path, note: RuntimeRecord) -> Path:
    """Have a catalog note what a later program does."""
    key = RUNTIME_STATE.pack_key("environment")
    value = RUNTIME_STATE.encode(key, note)
    put_raw(store / "catalog.mdb", [{"table": "runtime_state", "key": key.hex(), "value": value.hex()}])
    return store / "catalog.mdb"


STORE_FILES: Final[dict[str, Change]] = {
    "manifest of a shard": lambda store: raised(slot(shard(store)), 4),
    "catalog": lambda store: noted(store, RuntimeRecord(format=RuntimeRecord().format + 1)),
    "table of the catalog": lambda store: noted(store, RuntimeRecord(table_versions={"db": VERSIONS["db"] + 1})),
    "description of a database": lambda store: raised_json(database(store) / "database.json"),
    "position of a reader": lambda store: raised(database(store) / "readers" / "billing" / "00000.meta", 8),
    "position of the flush job": lambda store: raised(shard(store) / "readers" / "latewood-flush.meta", 8),
}
STORE_LINES: Final[dict[str, Line]] = {
    "append": lambda store: ("append", store / "clicks", "--json"),
    "cat": lambda store: ("cat", store / "clicks"),
    "tail --reader": lambda store: ("tail", store / "clicks", "--reader", "billing"),
    "info": lambda store: ("info", store / "clicks"),
    "readers ls": lambda store: ("readers", "ls", store / "clicks"),
    "readers seek": lambda store: ("readers", "seek", store / "clicks", "billing", "--sequence", "0"),
    "readers rm": lambda store: ("readers", "rm", store / "clicks", "billing", "--yes"),
    "verify": lambda store: ("verify", store),
    "rebuild": lambda store: ("rebuild", store / "clicks", "--yes", "--accept-loss"),
    "rebuild --catalog": lambda store: ("rebuild", "--catalog", store, "--yes"),
    "db create": lambda store: ("db", "create", store, "other"),
    "db fork": lambda store: ("db", "fork", store / "clicks", "copy"),
    "db drain": lambda store: ("db", "drain", store / "clicks"),
    "status": lambda store: ("status", store),
    "chunks inspect": lambda store: ("chunks", "inspect", store / "clicks", "1"),
    "flush": lambda store: ("flush", store, "--wait"),
    "compact": lambda store: ("compact", store, "--wait"),
    "archive": lambda store: ("archive", store, "--wait"),
    "evict": lambda store: ("evict", store, "--yes", "--wait"),
    "hydrate": lambda store: ("hydrate", store, "--wait"),
    "retain": lambda store: ("retain", store, "--yes", "--wait"),
    "work": lambda store: ("work", store, "--once"),
    "catalog info": lambda store: ("catalog", "info", store),
    "catalog check": lambda store: ("catalog", "check", store),
}
OF_THE_CATALOG: Final = {"db create", "db fork", "db drain", "chunks inspect", "work", "catalog info", "catalog check"}
OF_CHUNKS: Final = {"compact", "archive", "evict", "hydrate"}
STORE_RUNS: Final[dict[str, Collection[str]]] = {
    "manifest of a shard": OF_THE_CATALOG | OF_CHUNKS,
    "catalog": (),
    "table of the catalog": (),
    "description of a database": STORE_LINES.keys() - {"db drain", "rebuild --catalog"},
    "position of a reader": STORE_LINES.keys()
    - {"tail --reader", "readers ls", "readers seek", "readers rm", "status", "verify"},
    "position of the flush job": STORE_LINES.keys() - {"verify", "flush", "retain"},
}
ROLLED: Final = ("index.meta", "manifest.1", "manifest.2", "manifest.current", "current.sealed", "000000002.q")
STORE_MAY_CHANGE: Final = {"position of the flush job": ROLLED}
"""The flush job seals segments before it looks how far it has come."""


def a_store(home: Path) -> Path:
    """Return a store that holds records in all tiers; jobs made chunks twice."""
    store = make_store(home / "work" / "lake", "--segment-bytes", "64KiB")
    (store / "latewood.toml").write_text(f'[archive]\nurl = "{home}/work/attic"\n')
    for numbers in (range(40), range(40, 80)):
        fill(store, numbers)
        ok("flush", store, "--wait")
    ok("archive", store, "--wait")
    fill(store, range(80, 90))
    ok("tail", store / "clicks", "--reader", "billing")
    return store


@pytest.fixture(scope="module")
def store_scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    home = tmp_path_factory.mktemp("versions")
    a_store(home)
    return Scene(home / "work", home / "saved")


@pytest.mark.slow
@pytest.mark.parametrize("file", STORE_FILES)
def test_every_command_refuses_a_later_file_of_a_store(store_scene: Scene, file: str) -> None:
    may_change = {"catalog.mdb", *STORE_MAY_CHANGE.get(file, ())} - {file}
    if file.endswith("catalog"):
        may_change.remove("catalog.mdb")
    check(store_scene, STORE_FILES[file], STORE_LINES, "lake", STORE_RUNS[file], may_change)


CHUNK_RUNS: Final = STORE_LINES.keys() - {"cat", "verify", "rebuild --catalog", "chunks inspect", "compact"}


@pytest.mark.slow
def test_every_command_refuses_a_chunk_of_a_later_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog has the digest of what that program wrote: only a changed chunk is damage."""
    with monkeypatch.context() as patch:
        patch.setattr(chunk, "VERSION", chunk.VERSION + 1)
        store = a_store(tmp_path)
    name = min(path.relative_to(tmp_path / "work") for path in (database(store) / "chunks").iterdir())
    scene = Scene(tmp_path / "work", tmp_path / "saved")
    lines = {key: line for key, line in STORE_LINES.items() if key != "evict"}  # That removes it: the archive has it.
    check(scene, lambda _: scene.root / name, lines, "lake", CHUNK_RUNS - {"evict"}, ("catalog.mdb",))
