"""What a scrub found, written down: `verify.json` in the database's report directory, the latest one only."""

from pathlib import Path
from typing import Final, Literal

import msgspec

from latewood.fs import FileSystem, replace_file

REPORT_NAME: Final = "verify.json"
FINDINGS_MAX: Final = 10_000
"""Findings that a report names; more of them are counted."""

Severity = Literal["damage", "warning"]


class ScrubFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it should be."""

    severity: Severity
    where: str
    """A file, or an object's key."""
    problem: str
    shard: int | None = None
    chunk_id: int | None = None


class ScrubReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a scrub looked at, and what it found."""

    job_id: int
    database: str
    at_ms: int
    segments: int = 0
    records: int = 0
    """In the logs."""
    files: int = 0
    """Of chunks."""
    objects: int = 0
    bytes: int = 0
    damaged: int = 0
    """Findings of severity `damage`."""
    mend_job_id: int | None = None
    findings: tuple[ScrubFinding, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damaged


def store_report(fs: FileSystem, directory: Path, report: ScrubReport) -> Path:
    """Write a report over the last one, durably, and return its path."""
    fs.make_directory(directory)
    path = directory / REPORT_NAME
    replace_file(fs, path, msgspec.json.format(msgspec.json.encode(report), indent=2))
    return path


def load_report(fs: FileSystem, directory: Path) -> ScrubReport:
    """Return the latest report.

    Raises:
        NotFoundError: there is none.
    """
    file = fs.open(directory / REPORT_NAME)
    try:
        return msgspec.json.decode(file.pread(file.size(), 0), type=ScrubReport)
    finally:
        file.close()
