import json
from pathlib import Path
from typing import Any

import pytest

from latewood.cli.diagnosis import Facts, diagnose
from latewood.fs.disk import describe_disk, median_sync_ns, scratch_directory
from latewood.testing import MemFS
from tests.cli.shell import complaint, ok, rows, run

HEALTHY = Facts(
    version="1.0",
    python="CPython 3.11.7 on Linux",
    kernel="native",
    pure_is_forced=False,
    native_problem=None,
    cpu="x86_64",
    cpu_features={"sse4_2"},
    packages={"pyarrow": "20.0", "rich": "14.0"},
    directory="/data",
    disk_kind="ext4",
    free_bytes=1 << 40,
    is_writable=True,
    sync_us=300.0,
    segment_bytes=64 << 20,
)


def advice(**changes: Any) -> dict[str, str]:
    return {check.check: check.advice for check in diagnose(HEALTHY._replace(**changes)) if check.advice}


def test_a_healthy_machine_gets_no_advice() -> None:
    assert advice() == {}


@pytest.mark.parametrize(
    ("changes", "check", "word"),
    [
        ({"kernel": "pure", "pure_is_forced": True}, "kernel", "LATEWOOD_PURE=1"),
        ({"kernel": "pure", "native_problem": "No module named"}, "kernel", "install Rust"),
        ({"cpu_features": {"fpu"}}, "processor", "software"),
        ({"packages": {"pyarrow": None}}, "pyarrow", "latewood[arrow]"),
        ({"packages": {"rich": None}}, "rich", "latewood[pretty]"),
        ({"is_writable": False, "sync_us": None}, "directory", "cannot be written"),
        ({"disk_kind": "tmpfs"}, "file system", "memory"),
        ({"disk_kind": "nfs4"}, "file system", "another machine"),
        ({"free_bytes": 100 << 20}, "free space", "less than 4 segments of 64 MiB"),
        ({"sync_us": 20_000.0}, "fdatasync", "slow"),
        ({"sync_us": 3.0}, "fdatasync", "too fast to be true"),
    ],
)
def test_what_is_amiss_gets_advice(changes: dict[str, Any], check: str, word: str) -> None:
    found = advice(**changes)
    assert list(found) == [check]
    assert word in found[check]


def test_what_is_measured_has_its_unit() -> None:
    found = {check.check: check.value for check in diagnose(HEALTHY._replace(free_bytes=3 << 30, sync_us=141.0))}
    assert found["free space"] == "3.0 GiB"
    assert found["fdatasync"] == "0.141ms for a small write and its sync"


def test_a_sync_in_memory_may_be_fast() -> None:
    assert list(advice(sync_us=3.0, disk_kind="tmpfs")) == ["file system"]


def test_an_unknown_processor_is_not_judged() -> None:
    assert advice(cpu_features=set()) == {}


def test_doctor_looks_at_this_machine_and_leaves_nothing_behind(tmp_path: Path) -> None:
    found = {check["check"]: check for check in rows("doctor", tmp_path)}
    assert {"latewood", "python", "kernel", "processor", "pyarrow", "rich", "fdatasync"} <= found.keys()
    assert found["directory"]["value"] == str(tmp_path)
    assert not list(tmp_path.iterdir())


def test_doctor_wants_a_directory(tmp_path: Path) -> None:
    assert "no such directory" in complaint("doctor", tmp_path / "nothing", code=3)


def test_the_disk_is_described(tmp_path: Path) -> None:
    disk = describe_disk(tmp_path)
    assert 0 < disk.free_bytes <= disk.total_bytes
    assert disk.is_writable


def test_a_sync_is_measured_through_the_file_system() -> None:
    fs = MemFS()
    fs.make_directory(Path("/data"))
    assert median_sync_ns(fs, Path("/data"), 3) > 0
    assert fs.list(Path("/data")) == []


def test_a_scratch_directory_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    with scratch_directory(tmp_path) as scratch:
        (scratch / "file").touch()
    assert not list(tmp_path.iterdir())


def test_bench_measures_every_way_and_leaves_nothing_behind(tmp_path: Path) -> None:
    result = run("bench", tmp_path, "--seconds", "0.01", "--payload-bytes", "1K")
    assert result.exit_code == 0
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["measurement"].partition(",")[0] for one in found] == [
        "append",
        "append",
        "append durably",
        "append durably",
        "scan",
    ]
    assert all(one["records"] > 0 and one["ns_per_record"] > 0 for one in found)
    assert "payloads of 1,024 bytes" in result.stderr
    assert not list(tmp_path.iterdir())


def test_bench_draws_a_table(tmp_path: Path) -> None:
    heading, *lines = ok("bench", tmp_path, "--seconds", "0.01", "--format", "table").splitlines()
    assert heading.startswith("measurement ")
    assert len(lines) == 5
