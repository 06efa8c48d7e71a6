"""What `latewood status` prints: several tables for people, one object for programs."""

import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from latewood.catalog.tables import FailedPermanent
from latewood.catalog.tables.runtime_state import SESSION
from latewood.cli.errors import ExitCode, say
from latewood.cli.job_rows import state_name
from latewood.cli.output import Output
from latewood.cli.store_argument import open_store
from latewood.cli.store_figures import (
    DATABASE_BRIEF,
    DATABASE_COLUMNS,
    READER_BRIEF,
    READER_COLUMNS,
    TIER_COLUMNS,
    database_row,
    live_chunks,
    problems_of,
    reader_rows,
    shard_rows,
    tier_figures,
)
from latewood.cli.store_job_run import COLUMNS as JOB_COLUMNS
from latewood.cli.store_job_run import record_cells
from latewood.cli.store_keys import KEY_COLUMNS, key_rows
from latewood.runtime import Store
from latewood.runtime.database import ShardStats

_SHARD_COLUMNS = ("database", *ShardStats._fields)
_JOBS_MAX = 10
"""Jobs that the screen has room for."""


class Section(NamedTuple):
    """One list of the screen."""

    name: str
    columns: Sequence[str]
    rows: list[tuple[object, ...]]
    brief: Sequence[str] | None = None


def show_status(path: Path, output: Output) -> int:
    """Do what `latewood status` says."""
    with open_store(path) as store:
        summary, sections = _summary(store), _sections(store)
        problems = [line for _, record in store.databases() for line in problems_of(store.database(record.name))]
    match output.format:
        case "table":
            _draw(summary, sections, output)
        case "csv":
            output.rows(sections[0].columns, sections[0].rows)
        case _:
            lists = {one.name: [dict(zip(one.columns, row, strict=True)) for row in one.rows] for one in sections}
            output.show(summary | lists)
    for line in problems:
        say(line)
    return ExitCode.OK


def _summary(store: Store) -> dict[str, object]:
    session = store.catalog.read(lambda view: view.runtime_state(SESSION))
    is_open = session is not None and not session.clean and _is_alive(session.pid)
    counts = Counter(state_name(job) for job in store.jobs.jobs())
    return {
        "path": store.layout.root,
        "writer_pid": session.pid if session is not None and is_open else None,
        "generation": store.generation,
        "archive": next((one.value for one in store.settings.shown if one.key == "archive.url"), None),
        "jobs_by_state": dict(counts),
    }


def _is_alive(pid: int) -> bool:
    """Say whether a process is there: one that was killed did not say goodbye."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid > 0


def _sections(store: Store) -> list[Section]:
    databases = store.databases()
    opened = [store.database(record.name) for _, record in databases]
    chunks = [chunk for db_id, _ in databases for chunk in live_chunks(store, db_id)]
    jobs = [job for job in store.jobs.jobs() if not job.is_finished or isinstance(job.state, FailedPermanent)]
    return [
        Section("databases", DATABASE_COLUMNS, [database_row(store, *one) for one in databases], DATABASE_BRIEF),
        Section("shards", _SHARD_COLUMNS, [(one.name, *row) for one in opened for row in shard_rows(one)]),
        Section("readers", READER_COLUMNS, [row for one in opened for row in reader_rows(one)], READER_BRIEF),
        Section("tiers", TIER_COLUMNS, [tuple(one) for one in tier_figures(chunks)]),
        Section("keys", KEY_COLUMNS, key_rows(store)),
        Section("jobs", JOB_COLUMNS, [record_cells(store, job) for job in jobs[-_JOBS_MAX:]]),
    ]


def _draw(summary: dict[str, object], sections: Sequence[Section], output: Output) -> None:
    states = summary["jobs_by_state"]
    assert isinstance(states, dict)
    text = ", ".join(f"{count:,} {state}" for state, count in states.items())
    output.show(summary | {"jobs_by_state": text or None})
    for one in sections:
        if one.rows:
            sys.stdout.write(f"\n{one.name.upper()}\n")
            sys.stdout.flush()
            output.rows(one.columns, one.rows, brief=one.brief)
