"""What a test needs that not every machine has: the table of needs, and the hooks that decide by it.

A test declares a need by `@pytest.mark.needs("native")`, or asks for a fixture that implies one.  Where a need is not
met its tests are skipped, and the summary has one line for each need.  A need in LATEWOOD_REQUIRE must be met, or the
run ends before the first test: `LATEWOOD_REQUIRE=native,java`.
"""

import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

import pytest

VARIABLE: Final = "LATEWOOD_REQUIRE"
"""Names the needs that must be met here, separated by commas."""


class Need(NamedTuple):
    """Something that a test cannot do without."""

    missing: Callable[[pytest.Config], str]
    """Returns why it is not met here; an empty string if it is."""
    remedy: str
    """What meets it."""


# -- the probes ------------------------------------------------------------------------------------------


def _native(_: pytest.Config) -> str:
    if find_spec("latewood._native") is None:
        return "latewood._native is not built"
    try:
        import_module("latewood._native")
    except ImportError as error:
        return f"latewood._native does not load: {error}"
    return ""


def _java(_: pytest.Config) -> str:
    from latewood.spark.java import find_java  # noqa: PLC0415 - only tests of Spark need it

    found = find_java()
    return "" if found.home else f"there is no Java that Spark can use {'; '.join(found.passed_over)}".rstrip()


def _connect(_: pytest.Config) -> str:
    packages = {"grpc": "grpcio", "grpc_status": "grpcio-status", "google.rpc": "googleapis-common-protos"}
    packages["zstandard"] = "zstandard"
    return _not_installed(*(package for module, package in packages.items() if not _is_there(module)))


def _web(_: pytest.Config) -> str:
    return _not_installed(*(package for package in ("gunicorn", "uvicorn") if not _is_there(package)))


def _rich(_: pytest.Config) -> str:
    return "" if _is_there("rich") else _not_installed("rich")


def _testcapi(_: pytest.Config) -> str:
    return "" if _is_there("_testcapi") else "this Python has no _testcapi, which makes it run out of memory"


def _proc(_: pytest.Config) -> str:
    return "" if Path("/proc/self/fd").exists() else "there is no /proc to count descriptors in"


def _root(_: pytest.Config) -> str:
    return "only root can become another user" if os.geteuid() else ""


def _unprivileged(_: pytest.Config) -> str:
    if os.geteuid() or shutil.which("setpriv"):
        return ""
    return "root may write everywhere, and there is no setpriv to take that away"


def _strace(_: pytest.Config) -> str:
    if shutil.which("strace") is None:
        return "there is no strace, so no sync can be made to fail"
    inject = ("-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=1")
    failed = _failure("strace", "-f", "-qq", "-o", "/dev/null", *inject, "true")
    return f"strace may not trace here: {failed}" if failed else ""


def _mount(_: pytest.Config) -> str:
    with tempfile.TemporaryDirectory() as directory:
        failed = _failure("mount", "-t", "tmpfs", "-o", "size=64k", "latewood-test", directory)
        if failed:
            return f"this user may not mount a tmpfs: {failed}"
        subprocess.run(["umount", "--lazy", directory], check=True)
    return ""


def _namespace(_: pytest.Config) -> str:
    with tempfile.TemporaryDirectory() as directory:
        script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"'
        failed = _failure("unshare", "--mount", "sh", "-c", script, "sh", directory)
    return f"this user may not mount in a namespace of its own: {failed}" if failed else ""


def _confinement(_: pytest.Config) -> str:
    failed = _failure("setpriv", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "true")
    return f"this user may not make namespaces of processes and mounts: {failed}" if failed else ""


def _power_cut(_: pytest.Config) -> str:
    from tests.crash.real_disk import KINDS, RealDisk, Unavailable  # noqa: PLC0415 - only its tests need it

    for kind in KINDS.values():
        with tempfile.TemporaryDirectory() as directory:
            try:
                with RealDisk(Path(directory), kind).mounted() as disk:
                    disk.cut()
            except Unavailable as reason:
                return str(reason)
    return ""


def _campaign(config: pytest.Config) -> str:
    return "" if config.getoption("--campaign", default=False) else "too long for an ordinary run"


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # Not even the package that would hold it.
        return False


def _not_installed(*packages: str) -> str:
    return f"not installed: {', '.join(packages)}" if packages else ""


def _failure(*command: str) -> str:
    """Run a command and return why it failed; an empty string if it did not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return f"there is no {command[0]}"
    if done.returncode == 0:
        return ""
    return next(iter(done.stderr.strip().splitlines()), f"{command[0]} ended with {done.returncode}")


# -- the tables ------------------------------------------------------------------------------------------

NEEDS: Final = {
    "native": Need(_native, "make setup NATIVE=install"),
    "java": Need(_java, "install Java 17 or 21, or pip install 'latewood[java]'"),
    "connect": Need(_connect, "pip install 'latewood[dev]'"),
    "web": Need(_web, "pip install 'latewood[dev]'"),
    "rich": Need(_rich, "pip install 'latewood[pretty]'"),
    "testcapi": Need(_testcapi, "use a Python that has the modules of its own tests, such as Debian's"),
    "proc": Need(_proc, "mount -t proc proc /proc"),
    "root": Need(_root, "run the tests as root"),
    "unprivileged": Need(_unprivileged, "install util-linux"),
    "strace": Need(_strace, "install strace, and let this user trace"),
    "mount": Need(_mount, "run the tests as root, outside of a container"),
    "namespace": Need(_namespace, "run the tests as root, outside of a container"),
    "confinement": Need(_confinement, "run the tests as root, outside of a container"),
    "power_cut": Need(_power_cut, "run the tests as root on Linux, with e2fsprogs and loop devices"),
    "campaign": Need(_campaign, "make crash"),
}

FIXTURES: Final = {"native_twin": "native", "spark": "java"}
"""Fixtures whose tests all have a need.  One of several parameters has it by `pytest.param(..., marks=...)`."""


# -- the hooks -------------------------------------------------------------------------------------------


class Needs:
    """Which needs are met on this machine; each is looked at once, when the first test has it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._missing: dict[str, str] = {}

    def missing(self, name: str) -> str:
        """Return why a need is not met, an empty string if it is."""
        if name not in self._missing:
            self._missing[name] = NEEDS[name].missing(self._config)
        return self._missing[name]


_KEY: Final = pytest.StashKey[Needs]()


def required(value: str) -> list[str]:
    """Return the needs that a value of LATEWOOD_REQUIRE names.

    Raises:
        UsageError: there is no such need.
    """
    names = [name.strip() for name in value.split(",") if name.strip()]
    for name in names:
        if name not in NEEDS:
            message = f"{VARIABLE}: {_unknown(name)}"
            raise pytest.UsageError(message)
    return names


def _unknown(name: str) -> str:
    return f"there is no need {name!r}, only {', '.join(NEEDS)}"


def needs_of(item: pytest.Item) -> list[str]:
    """Return what a test needs, by its marks and by its fixtures."""
    marked = [name for mark in item.iter_markers("needs") for name in mark.args]
    implied = [need for fixture, need in FIXTURES.items() if fixture in getattr(item, "fixturenames", ())]
    return list(dict.fromkeys(marked + implied))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*names): what the machine must have; tests/needs.py has the table")
    config.stash[_KEY] = needs = Needs(config)
    names = required(os.environ.get(VARIABLE, ""))
    if hasattr(config, "workerinput"):  # The process that started this one has looked.
        return
    unmet = [f"{VARIABLE}: {name}: {why}; {NEEDS[name].remedy}" for name in names if (why := needs.missing(name))]
    if unmet:
        raise pytest.UsageError(*unmet)


@pytest.hookimpl(tryfirst=True)  # Before any fixture is made.
def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in needs_of(item):
        if name not in NEEDS:
            pytest.fail(_unknown(name), pytrace=False)
        if why := item.config.stash[_KEY].missing(name):
            pytest.skip(f"{name}: {why}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = summary(terminalreporter.stats.get("skipped", []))
    if lines:
        terminalreporter.section("left out")
        for line in lines:
            terminalreporter.line(line)


def summary(reports: Iterable[pytest.TestReport | pytest.CollectReport]) -> list[str]:
    """Return one line for each need that skipped tests, and one for each reason that is no need's."""
    counts: Counter[str] = Counter()
    for report in reports:
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        counts[text.removeprefix("Skipped: ")] += 1
    grouped: dict[str, tuple[int, str]] = {}
    for text, count in sorted(counts.items()):
        name, _, why = text.partition(": ")
        key = name if name in NEEDS else text
        before, reason = grouped.get(key, (0, f"{why}; {NEEDS[name].remedy}" if name in NEEDS else "it is skipped"))
        grouped[key] = before + count, reason
    return [f"{key}: {count:,} test{'s' * (count > 1)} left out: {why}" for key, (count, why) in grouped.items()]
