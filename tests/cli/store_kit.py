"""Stores that the commands are tried on."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cli.shell import ok, rows


def make_store(root: Path, *options: str, archive: bool = False) -> Path:
    """Return a store with the database `clicks` of two shards and, if asked, an archive in `attic`."""
    ok("db", "create", root, "clicks", "--shards", "2", *options)
    if archive:
        (root / "latewood.toml").write_text('[archive]\nurl = "attic"\n')
    return root


def fill(root: Path, numbers: Sequence[int], database: str = "clicks") -> None:
    """Append records whose keys spread them over the shards."""
    lines = [json.dumps({"key": f"user-{number % 7}", "payload": f"record {number}"}) for number in numbers]
    ok("append", root / database, "--json", "--quiet", stdin="\n".join(lines))


def payloads(root: Path, database: str = "clicks") -> list[str]:
    """Return what a database holds, sorted, so that a record that is there twice is seen."""
    return sorted(record["payload"] for record in rows("cat", root / database))


def expected(numbers: Sequence[int]) -> list[str]:
    return sorted(f"record {number}" for number in numbers)


def residencies(root: Path) -> set[str]:
    return {chunk["residency"] for chunk in rows("chunks", "ls", root)}


def job_states(found: Sequence[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(job["kind"], job["database"], job["state"]) for job in found]
