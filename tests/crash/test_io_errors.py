"""The operating system refuses: a sync fails, a directory may not be written, a file is not what it should be.

Each is an error of ours that says what and where, and nothing that was acknowledged is lost by it.  The syncs fail
for real, by `strace` in a child's system calls.
"""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import pytest

import latewood
from latewood import LatewoodError, LogOptions, Queue
from latewood.fs import PosixFS
from latewood.log.layout import Layout
from latewood.log.pointer import load_pointer
from latewood.log.recovery import read_last_footer
from latewood.queue.verify import verify_queue
from tests.patience import SECONDS_MAX

Mode = Literal["a", "r"]
RECORDS: Final = 12
OPTIONS: Final = LogOptions(segment_bytes_max=512)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Recovery says what it ignores."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def payload_of(sequence: int) -> bytes:
    return b"record %d" % sequence


def make_log(path: Path) -> None:
    """Make a log with sealed segments and a reader at 3."""
    with Queue.open(path, OPTIONS) as log:
        for sequence in range(RECORDS):
            log.append(payload_of(sequence))
            if sequence % 5 == 4:
                log.roll()
        log.reader("billing", start=3).close()


def contents(path: Path, mode: Mode = "r") -> list[bytes]:
    with Queue.open(path, OPTIONS, mode=mode, background=False) as log:
        found = [record.payload for record in log.scan()]
        with log.reader("billing") as reader:
            assert [record.payload for record in reader] == found[3:]
        return found


def run(code: str, *arguments: object, prefix: tuple[str, ...] = ()) -> list[str]:
    """Run a program in a child; return what it printed."""
    command = [*prefix, sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# -- a sync that fails ----------------------------------------------------------------------------------------

APPENDER: Final = """
import sys
import latewood
try:
    log = latewood.open(sys.argv[1], background=False)
except latewood.LatewoodError as error:
    sys.exit(print("refused:", error))
try:
    for number in range(6):
        print(log.append(b"record %d" % log.next_sequence, durable=True))
except latewood.Poisoned as error:
    print("poisoned:", error)
    for again in (lambda: log.append(b"never"), lambda: log.append_many([b"never"]), log.flush, log.roll):
        try:
            again()
        except latewood.Poisoned as error:
            print("still:", error)
try:
    log.close()
except latewood.Poisoned as error:
    print("at close:", error)
"""


def failing_sync(number: int) -> tuple[str, ...]:
    """Return what to put before a command so that its fdatasync of this number fails."""
    return (
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=fdatasync",
        "-e",
        f"inject=fdatasync:error=EIO:when={number}",
    )


@pytest.mark.needs("strace")
@pytest.mark.parametrize("number", range(1, 11))
def test_a_sync_that_fails_poisons_the_log_until_it_is_reopened(tmp_path: Path, number: int) -> None:
    path = tmp_path / "log"
    with latewood.open(path, background=False) as log:
        log.append(payload_of(0), durable=True)
    prefix = failing_sync(number)
    lines = run(APPENDER, path, prefix=prefix)
    acknowledged = [int(line) for line in lines if line.isdigit()]
    assert acknowledged == list(range(1, 1 + len(acknowledged)))
    failures = [line for line in lines if line.startswith(("refused:", "poisoned:", "at close:"))]
    assert len(failures) == 1, lines
    assert "Input/output error" in failures[0]
    is_append = failures[0].startswith("poisoned:")
    assert sum(line.startswith("still:") for line in lines) == (4 if is_append else 0), lines
    check_reopened(path, 1 + len(acknowledged), is_poisoned=not failures[0].startswith("refused:"))


def check_reopened(path: Path, acknowledged: int, *, is_poisoned: bool) -> None:
    """Check that all that was acknowledged is there, that the log goes on, and that its next seal tells of this."""
    with latewood.open(path, background=False) as log:
        found = [record.payload for record in log.scan()]
        assert found == [payload_of(sequence) for sequence in range(len(found))]
        assert len(found) >= acknowledged
        log.append(payload_of(len(found)), durable=True)
        log.roll()
        footer = read_last_footer(PosixFS(), Layout(path), log._manifest())
    pointer = load_pointer(PosixFS(), Layout(path))
    assert footer is not None
    assert pointer is not None
    assert (footer.flush_failure_flag, pointer.flush_failure_flag) == (is_poisoned, is_poisoned)
    assert verify_queue(PosixFS(), Layout(path), deep=True).is_sound


# -- a directory that may not be written or read ----------------------------------------------------------------

STRANGER: Final = """
import os, sys
import latewood
path = sys.argv[1]
with latewood.open(sys.argv[2], background=False) as log, log.reader("any") as reader:  # imports what it needs
    list(reader)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    latewood.open(path, background=False)
except latewood.LatewoodError as error:
    print(type(error).__name__, error)
try:
    with latewood.open(path, mode="r") as log, log.reader("billing") as reader:
        print(len(list(log.scan())), reader.sequence, len(list(reader)))
        reader.commit()
except latewood.LatewoodError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that everybody may look into, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def let_everybody_read(path: Path) -> None:
    for found in (path, *path.rglob("*")):
        found.chmod(0o755 if found.is_dir() else 0o644)


@pytest.mark.needs("root")
def test_a_log_that_may_only_be_read(public: Path) -> None:
    path = public / "log"
    make_log(path)
    let_everybody_read(path)
    to_write, counts, to_commit = run(STRANGER, path, public / "other")
    assert to_write.startswith(f"ReadOnlyError {path}")
    assert "Permission denied; check its owner and mode" in to_write
    assert counts == f"{RECORDS} 3 {RECORDS - 3}"
    assert to_commit == f"ReadOnlyError {path} cannot be written, so reader 'billing' cannot commit"
    assert contents(path, "a") == [payload_of(sequence) for sequence in range(RECORDS)]


@pytest.mark.needs("root")
@pytest.mark.parametrize("closed", ["log", "parent", "segments"])
def test_a_log_that_may_not_even_be_looked_into(public: Path, closed: str) -> None:
    path = public / "parent" / "log"
    path.parent.mkdir()
    make_log(path)
    let_everybody_read(path.parent)
    {"log": path, "parent": path.parent, "segments": path / "segments"}[closed].chmod(0o700)
    to_write, to_read = run(STRANGER, path, public / "other")
    assert to_write.startswith(f"ReadOnlyError {path}"), to_write
    assert "Permission denied" in to_write
    assert to_read.startswith("ReadOnlyError"), to_read
    assert "Permission denied" in to_read
    assert contents(path, "a") == [payload_of(sequence) for sequence in range(RECORDS)]


# -- something else in the place of a file ------------------------------------------------------------------------


def put_directory(path: Path) -> None:
    path.mkdir()


def put_loop(path: Path) -> None:
    path.symlink_to(path.name)


def put_dangling(path: Path) -> None:
    path.symlink_to("nowhere/at-all")


WRONG: Final = {"directory": put_directory, "loop": put_loop, "dangling": put_dangling}


def contents_or_refusal(path: Path, mode: Mode) -> tuple[list[bytes], str]:
    try:
        return contents(path, mode), ""
    except LatewoodError as error:
        return [], str(error)


@pytest.mark.parametrize("mode", ["a", "r"])
@pytest.mark.parametrize("wrong", WRONG)
def test_something_else_in_the_place_of_a_file(tmp_path: Path, wrong: str, mode: Mode) -> None:
    model = tmp_path / "model"
    make_log(model)
    expected = contents(model)
    names = sorted(path.relative_to(model) for path in model.rglob("*") if path.is_file())
    if wrong == "dangling":  # As good as no file; and a reader without one is a new reader.
        names.remove(Path("readers/billing.meta"))
    assert len(names) > 8
    for number, name in enumerate(names):
        path, kept = tmp_path / f"log{number}", tmp_path / "kept"
        shutil.copytree(model, path)
        (path / name).rename(kept)
        WRONG[wrong](path / name)
        found, refusal = contents_or_refusal(path, mode)
        assert found == expected or str(path) in refusal, name
        assert os.path.lexists(path / name)
        shutil.rmtree(path / name) if (path / name).is_dir() else (path / name).unlink()
        kept.rename(path / name)
        assert contents(path, "a") == expected, name


@pytest.mark.parametrize("mode", ["a", "r"])
def test_something_else_in_the_place_of_the_log(tmp_path: Path, mode: Mode) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"not a log")
    with pytest.raises(LatewoodError, match=str(path)):
        Queue.open(path, mode=mode)
    with pytest.raises(LatewoodError, match=str(path)):
        Queue.open(path / "below", mode=mode)
    assert path.read_bytes() == b"not a log"
    path.unlink()
    put_loop(path)
    with pytest.raises(LatewoodError, match=str(path)):
        Queue.open(path, mode=mode)
    with pytest.raises(LatewoodError, match=str(path)):
        Queue.open(path / "below", mode=mode)


@pytest.mark.parametrize("mode", ["a", "r"])
def test_a_name_that_no_file_system_takes(tmp_path: Path, mode: Mode) -> None:
    with pytest.raises(LatewoodError):
        Queue.open(tmp_path / ("x" * 300), mode=mode)
