"""What `latewood catalog` prints.  Apart from the commands, so that their help loads no LMDB."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from latewood.catalog import Catalog, CatalogView, ChangeEntry, check_file
from latewood.catalog.tables import CHANGE_LOG, TABLES, JobPhase
from latewood.catalog.tables.runtime_state import SESSION
from latewood.cli.catalog_argument import check_is_there, open_catalog
from latewood.cli.catalog_rows import plain, plain_key, plain_raw_key, table_named
from latewood.cli.errors import ExitCode, say
from latewood.cli.output import Output

_TABLE_NAMES = {table.number: table.name for table in TABLES}
_CHANGE_COLUMNS = ("generation", "ordinal", "table", "key", "change")


def show_info(path: Path, output: Output) -> int:
    """Do what `latewood catalog info` says."""
    with open_catalog(path) as opened:
        output.show({"path": path} | _sizes(opened) | opened.read(_figures))
    return ExitCode.OK


def list_tables(path: Path, output: Output) -> int:
    """Do what `latewood catalog tables` says."""
    with open_catalog(path) as opened:
        counts = opened.read(lambda view: view.counts())
    output.rows(("table", "rows", "version"), [(table.name, counts[table.name], table.version) for table in TABLES])
    return ExitCode.OK


def dump_rows(path: Path, table: str | None, limit: int | None, output: Output) -> int:
    """Do what `latewood catalog dump` says."""
    chosen = TABLES if table is None else (table_named(table),)
    is_flat = output.format in ("table", "csv")
    with open_catalog(path) as opened:
        rows = (
            (one.name, _cell(plain_key(key), is_flat=is_flat), _cell(plain(record), is_flat=is_flat))
            for one in chosen
            for key, record in islice(opened.scan(one), limit)
        )
        output.rows(("table", "key", "record"), rows)
    return ExitCode.OK


def check_catalog(path: Path, output: Output) -> int:
    """Do what `latewood catalog check` says."""
    check_is_there(path)
    report = check_file(path)
    summary = {"path": path, "is_sound": report.is_sound, "rows": sum(report.rows.values()), "summary": report.summary}
    problems = [(one.table, one.key, one.reason) for one in report.problems]
    output.report(summary, "problems", ("table", "key", "reason"), problems)
    if report.is_sound:
        return ExitCode.OK
    say(f"{path}: {report.summary}; keep the file: a catalog can be made again from logs and chunks")
    return ExitCode.CORRUPT


def list_changes(path: Path, cursor: str | None, limit: int | None, output: Output) -> int:
    """Do what `latewood catalog changes` says."""
    is_flat = output.format in ("table", "csv")
    with open_catalog(path) as opened:
        found = _all_changes(opened) if cursor is None else opened.changes(cursor)
        output.rows(_CHANGE_COLUMNS, (_change(one, path, is_flat=is_flat) for one in islice(found, limit)))
    return ExitCode.OK


def _sizes(opened: Catalog) -> dict[str, object]:
    found = opened.info()
    used = (found["last_pgno"] + 1) * found["page_bytes"]
    return {"used_bytes": used, "map_bytes": found["map_size"], "readers": found["num_readers"]}


def _figures(view: CatalogView) -> dict[str, object]:
    session = view.runtime_state(SESSION)
    return {
        "generation": view.generation(0),
        "was_closed": None if session is None else session.clean,
        "writer_pid": None if session is None else session.pid,
        "sessions": None if session is None else session.sessions,
        "databases": view.counts()["db"],
        "chunks": view.counts()["chunk_catalog"],
        "jobs": view.counts()["job_queue"],
        "jobs_pending": sum(1 for _ in view.live_jobs(JobPhase.PENDING)),
        "jobs_in_flight": sum(1 for _ in view.live_jobs(JobPhase.IN_FLIGHT)),
        "jobs_awaiting_repair": sum(1 for _ in view.live_jobs(JobPhase.AWAITING_REPAIR)),
        "gates_closed": sum(not gate.is_open for _, gate in view.gates()),
        "cursors": [name for name, _ in view.cursors()],
    }


def _all_changes(opened: Catalog) -> Iterator[ChangeEntry]:
    for position, change in opened.scan(CHANGE_LOG):
        yield ChangeEntry(position, _TABLE_NAMES.get(change.table, str(change.table)), change.key, change.kind)


def _change(entry: ChangeEntry, path: Path, *, is_flat: bool) -> tuple[object, ...]:
    key = _cell(plain_raw_key(entry.table, entry.key, path), is_flat=is_flat)
    return entry.position.generation, entry.position.ordinal, entry.table, key, entry.kind.name.lower()


def _cell(value: object, *, is_flat: bool) -> object:
    """Return a value as it is, or as one line of JSON where a cell has room for no more."""
    if not is_flat or not isinstance(value, dict):
        return value
    return msgspec.json.encode(value, enc_hook=str).decode()
