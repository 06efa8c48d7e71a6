"""Bits of a catalog's file are flipped, and the file is cut; no value that was not written is ever read.

LMDB has no checksums, and trusts what it maps: of a damaged file it may give other bytes, leave rows out, or be killed.
Every value has a checksum over its table and key.  A row that is left out is found by `latewood catalog check`.
"""

import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from latewood.catalog import Catalog, Lease, check_file
from latewood.jobs import JobManager
from tests.crash.flip_reader import OPTIONS
from tests.crash.job_scribe import chunk_of
from tests.jobs.kit import DB, DB_2, KIND, OTHER, make_databases
from tests.patience import SECONDS_MAX

FLIPS: Final = 100
FLIPS_CAMPAIGN: Final = 3_000
SEED: Final = 20_261
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - nothing here need survive
ROOT: Final = Path(__file__).parents[2]


@pytest.fixture
def directory() -> Iterator[Path]:
    """Return a directory with a small catalog in it, closed."""
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None) as name:
        fill(Path(name) / "template.mdb")
        yield Path(name)


def fill(path: Path) -> None:
    """Make a catalog with rows in every table, on a few dozen pages."""
    with Catalog.open(path, OPTIONS) as catalog:
        make_databases(catalog)
        catalog.feed.create("mirror")
        manager = JobManager(catalog)
        for number in range(60):
            manager.enqueue((KIND, OTHER)[number % 2], {"number": number, "text": "x" * number})
        for db_id in (DB, DB_2):
            manager.enqueue(KIND, db_id=db_id, priority=0)
        for number in range(10):
            job = manager.claim(f"worker {number}", (KIND, OTHER))
            assert job is not None
            if number % 2:
                manager.finish(job.job_id, Lease(f"worker {number}", 1))
        txn = catalog.begin_write()
        for number in range(200):
            txn.upsert_chunk(*chunk_of(DB, number + 1))
        txn.commit()


def judged(directory: Path, flips: Sequence[str]) -> dict[str, str]:
    """Return what a child process made of each flip; a flip that kills it is `killed`."""
    verdicts: dict[str, str] = {}
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    while len(verdicts) < len(flips):
        rest = [flip for flip in flips if flip not in verdicts]
        command = [sys.executable, "-m", "tests.crash.flip_reader", str(directory), *rest[:500]]
        result = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=10 * SECONDS_MAX, env=environment, cwd=ROOT
        )
        said = [line.split(" ", 1) for line in result.stdout.splitlines()]
        verdicts.update((flip, verdict) for flip, verdict in said if verdict != "begins")
        if result.returncode:
            assert result.returncode < 0, result.stderr
            verdicts[said[-1][0]] = "killed"
    return verdicts


def test_no_flipped_bit_gives_a_value_that_was_not_written(directory: Path, *, campaign: bool) -> None:
    chance = random.Random(os.urandom(8) if campaign else SEED)
    size = (directory / "template.mdb").stat().st_size
    flips = {f"{chance.randrange(size)}:{chance.randrange(8)}" for _ in range(FLIPS_CAMPAIGN if campaign else FLIPS)}
    verdicts = judged(directory, sorted(flips))
    bad = {flip: verdict for flip, verdict in verdicts.items() if verdict.split(" ")[0].isupper()}
    print(f"{size:,} bytes, {dict(Counter(verdict.split(' ')[0] for verdict in verdicts.values()))}")
    assert not bad, bad


def test_a_checksum_that_is_not_looked_at_would_be_noticed(directory: Path) -> None:
    path = directory / "template.mdb"
    data = path.read_bytes()
    places = [place for place in range(len(data)) if data.startswith(b"worker 8", place)]
    verdicts = judged(directory, [f"{place + 7}:0" for place in places])
    assert set(verdicts.values()) == {"refused", "same"}, "old pages are not read, and the one in use is refused"


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9])
def test_a_file_that_was_cut_is_found_out(directory: Path, share: float) -> None:
    path = directory / "template.mdb"
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    assert not check_file(path).is_sound
