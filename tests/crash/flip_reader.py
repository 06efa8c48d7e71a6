"""`python -m tests.crash.flip_reader DIRECTORY OFFSET:BIT...`: open a catalog with one bit flipped, and judge it.

One line for each flip.  It runs in a process of its own, because LMDB may be killed by what it maps.
"""

import logging
import sys
from pathlib import Path
from typing import Any, Final

from latewood.catalog import Catalog, CatalogOptions
from latewood.catalog.check import Problem
from latewood.catalog.examine import examine
from latewood.catalog.tables import CHANGE_CURSOR, CHANGE_LOG, GENERATION, RUNTIME_STATE, TABLES
from latewood.errors import LatewoodError
from latewood.jobs import JobManager

OPTIONS: Final = CatalogOptions(commit_budget_us=0)
Rows = dict[tuple[str, Any], Any]


def rows_of(catalog: Catalog) -> Rows:
    """Every row, read both ways: by scanning, and one by one."""
    found: Rows = {}
    for table in TABLES:
        for key, record in catalog.scan(table):
            found[table.name, key] = record
    return found


def lookups(catalog: Catalog, wanted: Rows) -> Rows:
    by_name = {table.name: table for table in TABLES}
    found = catalog.read(lambda view: {(name, key): view.get(by_name[name], key) for name, key in wanted})
    return {key: record for key, record in found.items() if record is not None}


def judge(path: Path, wanted: Rows) -> str:
    """Return `same`, `refused` (an error of ours), `found` (a check tells), or what must never be."""
    try:
        with Catalog.open(path, OPTIONS, mode="r") as catalog:
            verdict = _compare(catalog, wanted)
    except LatewoodError:
        return "refused"
    return verdict if verdict != "same" else _judge_writing(path, wanted)


def _judge_writing(path: Path, wanted: Rows) -> str:
    """Write to a catalog that reads well, as a program would, and read it again."""
    changing = {RUNTIME_STATE.name, GENERATION.name}
    kept = {key: record for key, record in wanted.items() if key[0] not in changing}
    try:
        with Catalog.open(path, OPTIONS) as catalog:
            manager = JobManager(catalog)
            for number in range(3):
                manager.enqueue(2000 + number)
            found = {key: record for key, record in rows_of(catalog).items() if key in kept}
            if any(record.lost_generation for _, record in catalog.scan(CHANGE_CURSOR)):
                found, kept = (
                    _without_changes(found),
                    _without_changes(kept),
                )  # Dropped, and whoever reads them is told.
            return _difference(catalog, found, kept, "after writing")
    except LatewoodError:
        return "refused"


def _without_changes(rows: Rows) -> Rows:
    return {key: record for key, record in rows.items() if key[0] not in (CHANGE_CURSOR.name, CHANGE_LOG.name)}


def _compare(catalog: Catalog, wanted: Rows) -> str:
    one_by_one = lookups(catalog, wanted)
    wrong = [key for key, record in one_by_one.items() if record != wanted[key]]
    if wrong:
        return f"WRONG {wrong[0]}"
    found = rows_of(catalog)
    if found == wanted and one_by_one == wanted:
        return "same"
    return _difference(catalog, found, wanted, "when read")


def _difference(catalog: Catalog, found: Rows, wanted: Rows, when: str) -> str:
    wrong = [key for key, record in found.items() if wanted.get(key) != record]
    if wrong:
        return f"WRONG {when}: {wrong[0]}"
    if found == wanted:
        return "same"
    missing = sorted(map(str, wanted.keys() - found.keys()))
    problems = catalog._env.read(lambda rows: [one for one in examine(rows) if isinstance(one, Problem)])
    return "found" if problems else f"UNNOTICED {when}: {missing[:1]} is missing"


def main() -> None:
    """Judge the flips that the command line names."""
    logging.disable(logging.CRITICAL)
    directory = Path(sys.argv[1])
    data = (directory / "template.mdb").read_bytes()
    with Catalog.open(directory / "template.mdb", OPTIONS, mode="r") as catalog:
        wanted = rows_of(catalog)
    for flip in sys.argv[2:]:
        offset, bit = map(int, flip.split(":"))
        path = directory / f"flipped-{offset}-{bit}.mdb"
        path.write_bytes(data[:offset] + bytes([data[offset] ^ 1 << bit]) + data[offset + 1 :])
        sys.stdout.write(f"{flip} begins\n")
        sys.stdout.flush()
        try:
            verdict = judge(path, wanted)
        except Exception as error:  # noqa: BLE001 - that is what this looks for
            verdict = f"LEAKED {type(error).__name__}: {error}"
        sys.stdout.write(f"{flip} {verdict}\n")
        sys.stdout.flush()
        for name in (path, path.with_name(path.name + "-lock"), path.with_name(path.name + ".writer")):
            name.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
