import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import latewood
from latewood import errors
from latewood.cli.errors import ExitCode, exit_code_of, explain
from latewood.cli.main import COMMANDS, program
from latewood.cli.reference import reference
from tests.cli.shell import PROGRAM, complaint, ok, run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "cli.md"


def commands(command: click.Command = program, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every command, groups included."""
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child
            yield from commands(child, (*path, name))


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_has_help(path: tuple[str, ...], flag: str) -> None:
    text = ok(*path, flag)
    assert text.startswith(f"Usage: latewood {' '.join(path)}".rstrip())
    options = text.partition("Options:")[2].partition("Commands:")[0]
    assert not re.search(r"^  --\S+( [A-Z]+)?$(?!\n    )", options, re.MULTILINE), "an option without help"


def test_the_help_lists_every_command_with_a_line() -> None:
    text = ok("--help")
    assert all(re.search(rf"^  {name} +{re.escape(line)}$", text, re.MULTILINE) for name, line in COMMANDS.items())


def test_no_command_shows_the_help_as_it_is() -> None:
    result = run()
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: latewood [OPTIONS] COMMAND")
    assert "\nCommands:\n  init " in result.stderr


def test_init_makes_no_log_among_other_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for command in ("init", "append"):
        line = complaint(command, tmp_path, code=2, stdin="")
        assert line == f"{tmp_path} is not a log, and not empty (notes.txt); name a new or an empty directory"
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def loaded_by(*calls: list[str]) -> set[str]:
    """The modules that a fresh interpreter holds after these calls."""
    script = (
        "import sys\nfrom latewood.cli.main import program\n"
        f"for call in {list(calls)}:\n"
        "    try: program.main(call, prog_name='latewood')\n"
        "    except SystemExit: pass\n"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(result.stderr.split())


def test_help_loads_no_command_and_nothing_heavy() -> None:
    loaded = loaded_by(["--help"])
    assert "latewood.cli.main" in loaded
    assert not loaded & {f"latewood.cli.{name}" for name in COMMANDS}
    assert not loaded & {"csv", "json", "msgspec", "pyarrow", "rich", "statistics", "tempfile"}


def test_no_command_loads_what_only_some_of_its_users_need() -> None:
    loaded = loaded_by(*([name, "--help"] for name in COMMANDS))
    assert loaded >= {f"latewood.cli.{name}" for name in COMMANDS}
    assert not loaded & {"asyncio", "msgspec", "pyarrow", "rich"}


def test_the_version_is_told() -> None:
    assert re.fullmatch(r"latewood \d+\.\d+\.\d+\S*\n", ok("--version"))


@pytest.mark.parametrize(
    ("typed", "meant"), [("apend", "`append`"), ("list", None), ("segment", "`segments`"), ("reader", "`readers`")]
)
def test_an_unknown_command_is_answered_with_the_one_that_was_meant(typed: str, meant: str | None) -> None:
    line = complaint(typed, "log", code=2)
    assert line.startswith(f"there is no command {typed!r}; ")
    assert line.endswith("see `latewood --help`")
    assert (f"perhaps you meant {meant}" in line) if meant else ("perhaps" not in line)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["cat"], "DIR"),
        (["cat", "log", "--nonsense"], "--nonsense"),
        (["cat", "log", "--format", "xml"], "'xml'"),
        (["cat", "log", "more"], "more"),
        (["cat", ""], "a path must not be empty"),
        (["init", ""], "a path must not be empty"),
        (["tail", "log", "-n", "many"], "'many'"),
        (["cat", "log", "--since", "soon"], "two hours ago"),
        (["cleanup", "log", "--yes", "--max-age", "30"], "1h30m"),
    ],
)
def test_a_wrong_call_is_one_line_that_names_the_help(arguments: list[str], word: str) -> None:
    line = complaint(*arguments, code=2)
    assert word in line
    assert line.endswith(f"see `latewood {arguments[0]} --help`")


PATH = Path("/log/file")
ERRORS = [
    (latewood.UsageError("x"), 2),
    (latewood.BadName("x"), 2),
    (latewood.RecordTooLarge(5, 4), 2),
    (errors.PayloadTooLarge(5, 4), 2),
    (errors.MessageTooLarge(5, 4), 2),
    (latewood.ReadOnlyError("x"), 1),
    (latewood.Owned(PATH, "store"), 2),
    (latewood.NotFoundError("x"), 3),
    (latewood.UnavailableError("x"), 1),
    (latewood.Locked(PATH, 7), 5),
    (latewood.DiskFull("x"), 1),
    (latewood.StorageError("x"), 1),
    (latewood.UnsupportedVersion("manifest", 9, PATH), 1),
    (latewood.CorruptError("x", PATH, 7), 4),
    (latewood.ManifestCorrupted("x", PATH, 7), 4),
    (latewood.ReaderAhead(PATH, 1, 2), 4),
    (latewood.AnotherLog("x", PATH, "y"), 4),
    (errors.StrayLog("x", PATH), 4),
    (errors.StrayRecord("x", PATH, 7, 8), 4),
    (latewood.DataLost(1, 2), 1),
    (latewood.ClosedError("x"), 1),
    (latewood.Poisoned("x"), 1),
    (latewood.DirectoryReplaced(PATH, "x", "lock"), 1),
    (latewood.Forked("x"), 1),
    (errors.KeyNotFound("x"), 3),
    (errors.EntryMissing(1, 2, 3), 3),
    (errors.AccessDenied("x"), 1),
    (errors.ConflictError("x"), 1),
    (errors.ObjectConflict("x"), 1),
    (errors.UniqueJobAlreadyPending(1, 2, 3), 1),
    (errors.GateClosed(1, 2, 3, None), 1),
    (errors.LeaseLost("x"), 1),
    (errors.JobCancelled("x"), 1),
    (errors.JobStopped("x"), 1),
    (errors.JobFailed("x"), 1),
    (errors.CatalogFull("x"), 1),
    (errors.TooManyFiles("x", 64, 1024), 1),
    (errors.Backpressure("x"), 1),
    (errors.Overloaded(1, "entries", 2, 1), 1),
    (errors.WaitExpired("x"), 1),
    (errors.ClusterUnavailable("x"), 1),
    (errors.OutcomeUnknown("x"), 1),
    (errors.OutcomeForgotten("x"), 1),
    (errors.TierUnavailable("x"), 1),
    (errors.AnotherArchive("x"), 1),
    (errors.Diverged("x", PATH, 7), 4),
    (errors.StrayRecord("x", PATH, 7, 8), 4),
    (errors.StrayLog("x", PATH), 4),
    (errors.LogBehind(PATH, "x"), 4),
    (errors.CatalogBehind(PATH, "x"), 4),
    (errors.CatalogCorrupted("x", PATH, "db", b"k"), 4),
    (errors.ChangesLost(1, 2), 1),
]


@pytest.mark.parametrize(("error", "code"), ERRORS, ids=lambda value: type(value).__name__)
def test_every_error_has_its_exit_code(error: latewood.LatewoodError, code: int) -> None:
    assert exit_code_of(error) == code
    assert "\n" not in explain(error)
    assert "mode='r'" not in explain(error)


def test_no_kind_of_error_was_forgotten() -> None:
    assert {type(error) for error, _ in ERRORS} == set(_all_errors(latewood.LatewoodError))


def _all_errors(kind: type[Exception]) -> Iterator[type[Exception]]:
    for child in kind.__subclasses__():
        if child.__module__ != errors.__name__:  # One that a module keeps to itself.
            continue
        yield child
        yield from _all_errors(child)


def test_a_note_is_part_of_the_line() -> None:
    error = latewood.DiskFull("no room")
    error.add_note("3 of 5 records were appended")
    assert explain(error) == "no room; 3 of 5 records were appended"


def test_a_bug_is_one_line_too(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        message = "surprise\non two lines"
        raise RuntimeError(message)

    monkeypatch.setattr("latewood.cli.info.open_to_read", fail)
    result = run("info", log)
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "latewood: unexpected RuntimeError: surprise on two lines; this is a bug: LATEWOOD_DEBUG=1 shows where it is"
    ]


def test_a_bug_shows_where_it_is_when_asked(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latewood.cli.info.open_to_read", lambda _: 1 / 0)
    monkeypatch.setenv("LATEWOOD_DEBUG", "1")
    assert isinstance(run("info", log).exception, ZeroDivisionError)


def test_an_error_of_the_system_is_one_line(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "/log")

    monkeypatch.setattr("latewood.cli.info.open_to_read", fail)
    assert complaint("info", log, code=1) == "/log: Permission denied"


def test_ctrl_c_is_quiet(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("latewood.cli.info.open_to_read", interrupt)
    result = run("info", log)
    assert (result.exit_code, result.output) == (ExitCode.INTERRUPTED, "")


def test_a_warning_of_the_library_is_said_once(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(*_: object, **__: object) -> None:
        for _attempt in range(3):
            logging.getLogger("latewood.log.recovery").warning("%s was cut", "tail")
        raise latewood.NotFoundError("gone")

    monkeypatch.setattr("latewood.cli.info.open_to_read", warn)
    assert run("info", log).stderr == "latewood: warning: tail was cut\nlatewood: gone\n"
    assert logging.getLogger("latewood").handlers == []


def test_the_reference_page_is_up_to_date() -> None:
    assert PAGE.read_text() == reference(), "run: python -m latewood.cli.reference > docs/reference/cli.md"


def test_completion_knows_the_commands() -> None:
    environment = {**os.environ, "_LATEWOOD_COMPLETE": "bash_complete", "COMP_WORDS": "latewood ver", "COMP_CWORD": "1"}
    result = subprocess.run(PROGRAM, env=environment, capture_output=True, text=True, check=False)
    assert result.stdout == "plain,verify\n"
