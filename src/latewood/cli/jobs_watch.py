"""`latewood jobs watch CATALOG`: show how far jobs are, until they are finished."""

import io
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from latewood.catalog import Catalog, CatalogView
from latewood.catalog.tables import Component, FailedPermanent, JobRecord
from latewood.cli.catalog_argument import open_catalog
from latewood.cli.errors import ExitCode
from latewood.cli.job_rows import BRIEF, COLUMNS, SPARE, job_row
from latewood.cli.output import Output, csv_lines, write_bytes
from latewood.cli.table import draw_rows
from latewood.clock import SystemClock
from latewood.errors import NotFoundError, WaitExpired

_LOOK_MS = 1_000
_MS = 1_000_000


def watch_jobs(path: Path, job_ids: tuple[int, ...], output: Output) -> int:
    """Do what `latewood jobs watch` says."""
    with open_catalog(path) as catalog:
        watched = _Watched(catalog, job_ids)
        screen = _screen(output)
        while True:
            generation = catalog.generation()
            changed = watched.look()
            if changed:
                screen.show(changed, watched.jobs.values())
            if watched.is_over:
                screen.end(watched.jobs.values())
                return ExitCode.FAILED if watched.has_failed else ExitCode.OK
            _wait(catalog, generation)


class _Watched:
    """The jobs that are watched, as they were when last looked at."""

    def __init__(self, catalog: Catalog, job_ids: Collection[int]) -> None:
        self._catalog, self._chosen = catalog, frozenset(job_ids)
        self.jobs: dict[int, JobRecord] = {}

    def look(self) -> list[JobRecord]:
        """Return those that changed.

        Raises:
            NotFoundError: a job that was asked for is not there.
        """
        changed = [job for job in self._catalog.read(self._now) if self.jobs.get(job.job_id) != job]
        self.jobs.update((job.job_id, job) for job in changed)
        return changed

    def _now(self, view: CatalogView) -> list[JobRecord]:
        job_ids = self._chosen or {key.job_id for key, _ in view.live_jobs()} | self.jobs.keys()
        found = [(job_id, view.job(job_id)) for job_id in sorted(job_ids)]
        missing = [job_id for job_id, job in found if job is None and job_id not in self.jobs]
        if missing:
            message = f"there is no job {missing[0]} in {self._catalog.path}"
            raise NotFoundError(message)
        return [job for _, job in found if job is not None]

    @property
    def is_over(self) -> bool:
        """Whether all of them are finished."""
        return all(job.is_finished for job in self.jobs.values())

    @property
    def has_failed(self) -> bool:
        """Whether one has failed for good."""
        return any(isinstance(job.state, FailedPermanent) for job in self.jobs.values())


class _Screen(Protocol):
    """Where jobs are shown."""

    def show(self, changed: Collection[JobRecord], jobs: Collection[JobRecord]) -> None:
        """Show jobs, of which some have changed."""

    def end(self, jobs: Collection[JobRecord]) -> None:
        """Show how it ended."""


def _screen(output: Output) -> _Screen:
    if output.format == "table" and sys.stdout.isatty():
        return _Redrawn()
    return _Lines(output) if output.format in ("jsonl", "csv") else _EndOnly(output)


class _Lines:
    """A line for each change."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._has_heading = False

    def show(self, changed: Collection[JobRecord], jobs: Collection[JobRecord]) -> None:
        """Print what has changed."""
        del jobs
        rows = [job_row(job) for job in changed]
        if self._output.format == "csv" and self._has_heading:
            write_bytes(csv_lines(rows))
        else:
            self._output.rows(COLUMNS, rows)
        self._has_heading = True

    def end(self, jobs: Collection[JobRecord]) -> None:
        """Everything was said."""


class _EndOnly:
    """One value, when all is over."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def show(self, changed: Collection[JobRecord], jobs: Collection[JobRecord]) -> None:
        """Wait for the end."""

    def end(self, jobs: Collection[JobRecord]) -> None:
        """Print all of it."""
        self._output.rows(COLUMNS, [job_row(job) for job in jobs], brief=BRIEF, spare=SPARE)


class _Redrawn:
    """A table on a terminal that is drawn over the one before."""

    def __init__(self) -> None:
        self._lines = 0

    def end(self, jobs: Collection[JobRecord]) -> None:
        """The last table stays."""

    def show(self, changed: Collection[JobRecord], jobs: Collection[JobRecord]) -> None:
        """Draw it, in the place of the last one."""
        del changed
        text = io.StringIO()
        places = [COLUMNS.index(name) for name in BRIEF if name not in SPARE]
        rows = [[job_row(job)[place] for place in places] for job in jobs]
        draw_rows([COLUMNS[place] for place in places], rows, text)
        up = f"\x1b[{self._lines}F\x1b[J" if self._lines else ""
        sys.stdout.write(up + text.getvalue())
        sys.stdout.flush()
        self._lines = text.getvalue().count("\n")


def _wait(catalog: Catalog, generation: int) -> None:
    """Wait until something was committed; look anew now and then in any case."""
    try:
        catalog.wait_for_generation(Component.CATALOG, generation + 1, SystemClock().now_ns() // _MS + _LOOK_MS)
    except WaitExpired:
        return
