"""Whether the set-up builds the native module, installs cargo for it, asks, or does without."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from latewood.replica.native import REMEDY
from tools.native import (
    MANAGERS,
    Cargo,
    Facts,
    Step,
    decide,
    find_cargo,
    gather,
    install_cargo,
    oldest_rust,
    parse_candidate,
    parse_version,
    shown,
)

ROOT = Path(__file__).parents[2]
BARE = Facts(
    choice="",
    oldest=(1, 85),
    cargo=None,
    manager="apt-get",
    candidate=(1, 85),
    may_install=True,
    is_terminal=False,
)
APT, DNF, APK = MANAGERS


@pytest.mark.parametrize(
    ("facts", "step", "reason"),
    [
        (replace(BARE, cargo=(1, 85)), Step.BUILD, "cargo 1.85"),
        (replace(BARE, cargo=(1, 97), choice="install"), Step.BUILD, "cargo 1.97"),
        (replace(BARE, cargo=(1, 97), choice="0"), Step.PURE, "NATIVE=0"),
        (BARE, Step.PURE, "cargo 1.85 or later is not here; make setup NATIVE=install installs it with apt-get"),
        (replace(BARE, is_terminal=True), Step.ASK, "apt-get has 1.85"),
        (replace(BARE, choice="install"), Step.INSTALL, "apt-get has 1.85"),
        (replace(BARE, choice="install", cargo=(1, 63)), Step.INSTALL, "cargo 1.63 is here, not cargo 1.85 or later"),
        (replace(BARE, choice="install", may_install=False), Step.PURE, "have root run apt-get"),
        (replace(BARE, choice="install", candidate=(0, 66)), Step.PURE, "and apt-get has 0.66; install one from"),
        (
            replace(BARE, candidate=None),
            Step.PURE,
            "not here; make setup NATIVE=install asks apt-get for one, or install",
        ),
        (replace(BARE, candidate=None, choice="install"), Step.PURE, "not here; install one from https://rustup.rs"),
        (replace(BARE, candidate=None, may_install=False), Step.PURE, "not here; install one from https://rustup.rs"),
        (replace(BARE, manager=None, candidate=None), Step.PURE, "not here; install one from https://rustup.rs"),
    ],
)
def test_cargo_is_used_offered_installed_or_done_without(facts: Facts, step: Step, reason: str) -> None:
    decision = decide(facts)
    assert decision.step is step
    assert reason in decision.reason


@pytest.mark.parametrize("choice", ["", "0"])
@pytest.mark.parametrize("candidate", [None, (1, 63), (1, 85)])
def test_nothing_is_installed_unasked(choice: str, candidate: tuple[int, int] | None) -> None:
    for may_install in (False, True):
        facts = replace(BARE, choice=choice, candidate=candidate, may_install=may_install)
        assert decide(facts).step is Step.PURE


@pytest.mark.parametrize(
    ("manager", "text", "version"),
    [
        (APT, "cargo:\n  Installed: (none)\n  Candidate: 1.85.1+dfsg3-1\n  Version table:\n", (1, 85)),
        (APT, "cargo:\n  Installed: 0.66.0+ds1-1\n  Candidate: 0.66.0+ds1-1\n", (0, 66)),
        (APT, "cargo:\n  Installed: (none)\n  Candidate: (none)\n", None),
        (APT, "", None),
        (DNF, "1.91.0\n", (1, 91)),
        (DNF, "", None),
        (APK, "cargo-1.87.0-r0\n", (1, 87)),
        (APK, "", None),
    ],
)
def test_a_package_manager_names_its_candidate(manager: object, text: str, version: tuple[int, int] | None) -> None:
    assert parse_candidate(manager, text) == version  # type: ignore[arg-type] # one of MANAGERS


def test_a_version_is_its_first_two_numbers() -> None:
    assert parse_version("cargo 1.85.1 (d73d2caf9 2024-12-31)") == (1, 85)
    assert parse_version("error: no default toolchain") is None


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_rustups_cargo_is_found_beside_the_path(tmp_path: Path) -> None:
    cargo = program(tmp_path / ".cargo" / "bin" / "cargo", "echo cargo 1.90.0")
    empty = {"HOME": str(tmp_path), "PATH": str(tmp_path / "nothing")}
    assert find_cargo(empty, (1, 85)) == Cargo(str(cargo), (1, 90))
    assert find_cargo({"HOME": "/nowhere", "PATH": ""}, (1, 85)) is None


@pytest.mark.parametrize(("text", "version"), [("exit 1", None), ("echo cargo 1.63.0", (1, 63))])
def test_a_cargo_on_the_path_that_will_not_do_does_not_hide_rustups(
    text: str, version: tuple[int, int] | None, tmp_path: Path
) -> None:
    on_path = program(tmp_path / "bin" / "cargo", text)
    environ = {"HOME": str(tmp_path), "PATH": str(on_path.parent)}
    assert find_cargo(environ, (1, 85)) == Cargo(str(on_path), version)
    rustups = program(tmp_path / ".cargo" / "bin" / "cargo", "echo cargo 1.84.0")
    assert find_cargo(environ, (1, 85)) == Cargo(str(on_path), version)
    assert find_cargo(environ, (1, 84)) == Cargo(str(rustups), (1, 84))


@pytest.mark.parametrize(("user", "first"), [(0, "env"), (1000, "sudo")])
def test_cargo_is_installed_without_a_question_and_with_the_way_to_the_network(
    user: int, first: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(tmp_path / "apt-get", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    commands: list[list[str]] = []
    install_cargo(lambda command: commands.append(list(command)))  # No environment, so ours, with its proxies.
    (command,) = commands
    assert command[0] == first
    assert command.index("DEBIAN_FRONTEND=noninteractive") < command.index("apt-get")


def test_the_package_manager_is_asked_only_without_a_cargo_that_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "bin"
    program(tools / "cargo", "echo cargo 1.2.3")
    program(tools / "apt-get", "exit 1")
    program(tools / "apt-cache", f"touch {tmp_path}/asked; echo '  Candidate: 1.99.0'")
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "rustup"))
    facts = gather(ROOT, "", is_terminal=False)
    assert (facts.cargo, facts.manager, facts.candidate) == ((1, 2), "apt-get", (1, 99))
    (tmp_path / "asked").unlink()
    program(tools / "cargo", "echo cargo 2.0.0")
    assert gather(ROOT, "", is_terminal=False).candidate is None
    assert gather(ROOT, "0", is_terminal=False).candidate is None
    assert not (tmp_path / "asked").exists()


def test_the_rust_that_the_crate_needs_is_named_wherever_a_user_is_sent_for_one() -> None:
    oldest = shown(oldest_rust(ROOT))
    pages = ["README.md", "CONTRIBUTING.md", "docs/guide/getting-started.md", "docs/guide/pure-python.md"]
    texts = [REMEDY, *((ROOT / page).read_text() for page in pages)]
    assert [text[:60] for text in texts if f"{oldest} or later" not in text] == []
