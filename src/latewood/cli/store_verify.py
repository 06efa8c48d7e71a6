"""`latewood verify STORE`: a scrub of every tier, run here, and its report."""

from pathlib import Path

from latewood.cli.engine_option import EngineChoice
from latewood.cli.errors import ExitCode, say
from latewood.cli.output import Output
from latewood.cli.store_argument import chosen_names, find_database, located, open_store
from latewood.cli.store_job_run import Work, enqueue, has_failed, job_cells, wait_for, working
from latewood.fs import PosixFS
from latewood.jobs.handlers.report import ScrubReport, load_report
from latewood.runtime import Store

_COLUMNS = ("database", "severity", "where", "problem", "shard", "chunk_id")


def verify_store(path: Path, output: Output, choice: EngineChoice) -> int:
    """Do what `latewood verify` says of a store."""
    place = located(path, ())
    mended = 0
    with open_store(place.root, "w", choice.engine(place.root)) as store:
        names = chosen_names(store, place.names)
        with working(store, None):
            jobs = enqueue(store, Work("verify"), names)
            wait_for(store, jobs, "verify")
            failed = [job for job in jobs if has_failed(store, job)]
            reports = [] if failed else [_report(store, name) for name in names]
            repairs = [report.mend_job_id for report in reports if report.mend_job_id is not None]
            wait_for(store, repairs, "repair")
            mended = sum(store.jobs.get(job).progress_done for job in repairs)
        for job in [*failed, *repairs]:
            _, kind, name, state, _, _, _, error = job_cells(store, job)
            say(f"{kind} of {name!r}: {state}" + (f": {error}" if error else ""))
    if failed:
        return ExitCode.FAILED
    findings = [
        (report.database, one.severity, one.where, one.problem, one.shard, one.chunk_id)
        for report in reports
        for one in report.findings
    ]
    summary = _summary(place.root, reports) | {"mended": mended}
    output.report(summary, "findings", _COLUMNS, findings)
    if summary["damaged"] or mended:
        rest = "; `latewood verify` again shows what is left" if mended else ""
        say(f"damaged: {summary['damaged']:,}; mended: {_chunks(mended)}{rest}")
    return ExitCode.OK if all(report.is_sound for report in reports) else ExitCode.CORRUPT


def _chunks(count: int) -> str:
    return f"{count:,} {'chunk' if count == 1 else 'chunks'}"


def _report(store: Store, name: str) -> ScrubReport:
    return load_report(PosixFS(), store.site_of(find_database(store, name).db_id).report_dir)


def _summary(root: Path, reports: list[ScrubReport]) -> dict[str, object]:
    return {
        "path": root,
        "is_sound": all(report.is_sound for report in reports),
        "databases": [report.database for report in reports],
        "segments_checked": sum(report.segments for report in reports),
        "records_checked": sum(report.records for report in reports),
        "files_checked": sum(report.files for report in reports),
        "objects_checked": sum(report.objects for report in reports),
        "bytes_checked": sum(report.bytes for report in reports),
        "damaged": sum(report.damaged for report in reports),
    }
