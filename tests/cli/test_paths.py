"""Every command, with every kind of path: it does what it is for, or says in one line what to do instead."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click
import pytest

from latewood.cli.errors import ExitCode
from latewood.cli.main import program
from latewood.cli.place import Kind, kind_of, store_around
from tests.cli.shell import complaint, ok, row, rows, run

SHARD: Final = "lake/databases/00000001-clicks/shards/00000"
PATHS: Final = {
    "log": "log",
    "store": "lake",
    "database": "lake/clicks",
    "no database": "lake/nope",
    "shard": SHARD,
    "nothing": "missing",
    "directory": "empty",
    "file": "file",
}
KINDS: Final = {
    "log": Kind.LOG,
    "store": Kind.STORE,
    "database": Kind.DATABASE,
    "no database": Kind.DATABASE,
    "shard": Kind.SHARD,
    "nothing": Kind.NOTHING,
    "directory": Kind.DIRECTORY,
    "file": Kind.FILE,
}
NEXT: Final = ("`latewood ", " give ", " name ", "--help`", " set ", "already")
"""One of these is in a text that says what to do next."""


class Codes(NamedTuple):
    """How a command ends on a log, on a store, and on a database."""

    log: int
    store: int
    database: int


BOTH: Final = Codes(0, 2, 0)
"""For a log, or a database."""
STORES: Final = Codes(3, 0, 0)
"""For a store, or some of its databases."""
STORE: Final = Codes(3, 0, 3)
DATABASE: Final = Codes(2, 2, 0)
ARCHIVE: Final = Codes(3, 2, 2)
"""The store has none."""
ANY: Final = Codes(0, 0, 3)
"""For a directory that is there, whatever it is."""

COMMANDS: Final = {
    "init @": Codes(1, 2, 2),
    "append @": BOTH,
    "cat @": BOTH,
    "tail @": BOTH,
    "info @": BOTH,
    "segments @": BOTH,
    "inspect @": Codes(2, 2, 2),
    "readers ls @": BOTH,
    "readers lag @": BOTH,
    "readers seek @ r --latest": BOTH,
    "readers rm @ r --yes": BOTH,
    "cleanup @ --yes": Codes(0, 2, 2),
    "seal @": BOTH,
    "verify @": Codes(0, 0, 0),
    "rebuild @ --yes": BOTH,
    "rebuild @ --catalog --yes": STORE,
    "db create @ other": Codes(2, 0, 2),
    "db ls @": STORE,
    "db info @": DATABASE,
    "db drain @": DATABASE,
    "db activate @": DATABASE,
    "db drop @ --dry-run": DATABASE,
    "db fork @ fork": DATABASE,
    "db purge @ --dry-run": STORE,
    "status @": STORE,
    "chunks ls @": STORES,
    "chunks inspect @ 1": DATABASE,
    "flush @": STORES,
    "compact @": STORES,
    "rekey @": STORES,
    "archive @": ARCHIVE,
    "evict @ --yes": ARCHIVE,
    "hydrate @": ARCHIVE,
    "retain @ --yes": STORES,
    "work @ --once": STORE,
    "config show @": STORE,
    "jobs ls @": STORE,
    "jobs show @ 1": STORE,
    "jobs cancel @ 1": STORE,
    "jobs retry @ 1": Codes(3, 1, 3),
    "jobs prune @ --yes": STORE,
    "jobs run @": STORE,
    "jobs watch @ 1": STORE,
    "catalog info @": STORE,
    "catalog tables @": STORE,
    "catalog check @": STORE,
    "catalog dump @": STORE,
    "catalog changes @": STORE,
    "doctor @": ANY,
    "bench @ --seconds 0.01": ANY,
}
ELSEWHERE: Final = {
    "picture": "tests/cli/test_picture.py",
    "serve": "tests/replica/test_cluster.py",
    **{f"cluster {name}": "tests/cli/test_cluster.py" for name in ("init", "status", "add", "remove", "certs")},
    "cluster transfer-leader": "tests/replica/test_trial.py",
    "cluster repair": "tests/replica/test_cluster_damage.py",
    "spark doctor": "it takes no path",
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("paths")
    ok("init", home / "log", "--segment-bytes", "64KiB")
    ok("append", home / "log", stdin="a\nb\n")
    ok("db", "create", home / "lake", "clicks", "--shards", "2", "--segment-bytes", "64KiB")
    ok("append", home / "lake/clicks", stdin="a\nb\n")
    ok("flush", home / "lake", "--wait")
    ok("append", home / "lake/clicks", stdin="c\n")
    for path in ("log", "lake/clicks"):
        ok("readers", "seek", home / path, "r", "--earliest", "--create")
    (home / "file").write_text("text")
    (home / "empty").mkdir()
    return home


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    shutil.copytree(template, tmp_path / "home")
    return tmp_path / "home"


def commands(group: click.Group, name: tuple[str, ...] = ()) -> Iterator[str]:
    context = click.Context(group)
    for one in group.list_commands(context):
        found = group.get_command(context, one)
        if isinstance(found, click.Group):
            yield from commands(found, (*name, one))
        else:
            yield " ".join((*name, one))


def test_every_command_is_tried() -> None:
    tried = {text.partition(" @")[0] for text in COMMANDS}
    assert tried | ELSEWHERE.keys() == set(commands(program))


def arguments(text: str, path: Path) -> list[str | Path]:
    return [path if word == "@" else word for word in text.split()]


@pytest.mark.slow
@pytest.mark.parametrize("text", COMMANDS)
def test_a_command_meets_every_kind_of_path(home: Path, text: str) -> None:
    codes = COMMANDS[text]._asdict()
    for kind, path in PATHS.items():
        result = run(*arguments(text, home / path), stdin="x\n")
        what = f"{text} of a {kind}: {result.exit_code}\n{result.output}"
        assert result.exit_code == codes.get(kind, result.exit_code), what
        assert result.exit_code in set(ExitCode) - {ExitCode.INTERRUPTED}, what
        lines = result.stderr.splitlines()
        assert all(line.startswith("latewood: ") for line in lines), what
        assert "bug" not in result.stderr, what
        assert "Traceback" not in result.output, what
        if result.exit_code != ExitCode.OK:
            assert lines, what
            assert kind not in codes or any(word in lines[-1] for word in NEXT) or text.startswith("jobs retry"), what


def test_nothing_is_made_within_a_store(home: Path) -> None:
    before = sorted(os.listdir(home / "lake"))  # noqa: PTH208 - names are what is compared
    for text in ("init @", "append @", "db create @ other", "seal @", "cat @", "tail @ --reader new"):
        run(*arguments(text, home / "lake/nope"), stdin="x\n")
    assert sorted(os.listdir(home / "lake")) == before  # noqa: PTH208 - as above
    assert "latewood db create" in complaint("init", home / "lake/nope", code=2)


def test_a_path_is_known_for_what_it_names(home: Path) -> None:
    assert {name: kind_of(home / path) for name, path in PATHS.items()} == KINDS
    assert store_around(home / SHARD) == home / "lake"
    assert store_around(home / "log") is None


# -- what a database shows, shard by shard -----------------------------------------------------------------------


def test_info_of_a_database_is_that_of_db_info(home: Path) -> None:
    assert row("info", home / "lake/clicks") == row("db", "info", home / "lake/clicks")


def test_segments_of_a_database_are_those_of_its_shards(home: Path) -> None:
    found = rows("segments", home / "lake/clicks")
    assert {one["shard"] for one in found} == {0, 1}
    assert sum(one["record_count"] for one in found) == 1, "what was flushed has left the logs"
    alone = rows("segments", home / SHARD)
    assert [{name: value for name, value in one.items() if name != "shard"} for one in found if not one["shard"]] == (
        alone
    )


def test_a_database_is_sealed_shard_by_shard(home: Path) -> None:
    open_before = {(one["shard"], one["segment_id"]) for one in rows("segments", home / "lake/clicks")}
    sealed = [(one["shard"], one["segment_id"]) for one in rows("seal", home / "lake/clicks")]
    assert {one for one in sealed if one[1] is not None} <= open_before
    assert len([one for one in sealed if one[1] is not None]) == 1
    assert "nothing to seal" in run("seal", home / "lake/clicks").stderr


def test_a_shard_is_not_cleaned_behind_its_store(home: Path) -> None:
    command = ("cleanup", home / SHARD, "--ignore-readers-silent-for", "1ms", "--max-bytes", "0", "--yes")
    assert "`latewood flush` lets it go" in complaint(*command, code=2)


def test_a_shard_is_not_appended_to_behind_its_store(home: Path) -> None:
    assert f"is a shard of the store {home / 'lake'}" in complaint("append", home / SHARD, code=2, stdin="x\n")
    assert len(rows("cat", home / "lake/clicks")) == 3


@pytest.mark.parametrize("text", ["readers rm @ latewood-flush --yes", "readers seek @ latewood-flush --latest"])
def test_the_reader_that_keeps_a_shard_is_not_moved(home: Path, text: str) -> None:
    assert "`latewood flush` moves it on" in complaint(*arguments(text, home / SHARD), code=2)
    assert [one["name"] for one in rows("readers", "ls", home / SHARD)] == ["latewood-flush"]


def test_a_database_wins_over_a_log_of_its_name(home: Path) -> None:
    shutil.copytree(home / "log", home / "lake/clicks")
    assert kind_of(home / "lake/clicks") is Kind.DATABASE
    assert [one["payload"] for one in rows("cat", home / "lake/clicks", "--merged")] == ["a", "b", "c"]
    assert {one["database"] for one in rows("flush", home / "lake/clicks")} == {"clicks"}
    shutil.copytree(home / "log", home / "lake/stray")
    assert kind_of(home / "lake/stray") is Kind.LOG


@pytest.mark.parametrize(
    "command",
    [
        "status lake",
        "db ls lake",
        "db create lake other",
        "verify lake",
        "verify lake/clicks",
        "cat lake/clicks",
        "append lake/clicks",
        "flush lake",
        "work lake --once",
    ],
)
def test_every_command_says_that_a_catalog_is_lost(home: Path, command: str) -> None:
    (home / "lake/catalog.mdb").unlink()
    before = sorted(home.rglob("*"))
    words = [home / word if word.startswith("lake") else word for word in command.split()]
    line = complaint(*words, code=ExitCode.CORRUPT, stdin="d\n")
    assert f"the catalog is lost; run `latewood rebuild --catalog {home / 'lake'}`" in line
    assert sorted(home.rglob("*")) == before


def test_no_catalog_is_made_of_a_store_whose_databases_do_not_say_what_they_are(home: Path) -> None:
    for path in (home / "lake/databases").rglob("database.json"):
        path.unlink()
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file() and path.suffix != ".mdb-lock"}
    result = run("rebuild", "--catalog", home / "lake", "--yes")
    assert result.exit_code == ExitCode.CORRUPT
    assert "nothing was written; restore the `database.json`" in result.stderr
    after = {path: path.read_bytes() for path in home.rglob("*") if path.is_file() and path.suffix != ".mdb-lock"}
    assert after == before


def test_a_lost_catalog_is_made_again_as_was_said(home: Path) -> None:
    (home / "lake/catalog.mdb").unlink()
    assert "rebuild --catalog" in complaint("catalog", "info", home / "lake", code=ExitCode.NOT_FOUND)
    assert "rebuild --catalog" in complaint("rebuild", home / "lake", "--yes", code=ExitCode.USAGE)
    ok("rebuild", "--catalog", home / "lake", "--yes")
    assert [one["payload"] for one in rows("cat", home / "lake/clicks", "--merged")] == ["a", "b", "c"]
