"""Runs a list of claims and prints one table: what every benchmark's command line does.

How to read it: bench/README.md.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from bench.claims import FULL, QUICK, Effort
from bench.contest import Claim, Outcome, settle
from bench.measure import GiB, MiB, commit, load, machine
from bench.processes import Kind, Worker
from bench.table import markdown, summary

_FREE_BYTES_MIN: Final = 16 * GiB


def main(claims: Callable[[Effort], list[Claim]], description: str) -> int:
    """Measure, print, keep; return 1 if a target was missed."""
    arguments = _arguments(description)
    effort = QUICK if arguments.quick else FULL
    chosen = [claim for claim in claims(effort) if _is_chosen(claim, arguments.only)]
    if not chosen:
        names = ", ".join(claim.name for claim in claims(effort))
        sys.stderr.write(f"no claim is called {' or '.join(arguments.only)}; there are {names}\n")
        return 2
    with _scratch(arguments.directory) as directory:
        facts = machine(directory) | {"commit": commit(), "quick": arguments.quick}
        _warm_up(directory, 2 * GiB if arguments.quick else 4 * GiB)
        started = time.monotonic()
        outcomes = _settle_all(chosen, directory)
        facts |= {"seconds": round(time.monotonic() - started), "load_after": load()}
    report = _report(outcomes, facts)
    print(report)
    if arguments.json:
        _keep(arguments.json, outcomes, facts, report)
    return int(any(line.met is False for outcome in outcomes for line in outcome.lines))


def _arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: two minutes instead of ten")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="claims whose name begins so")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures, and the table beside them")
    parser.add_argument("--directory", type=Path, metavar="DIR", help="the disk to measure on; default: here")
    return parser.parse_args()


def _is_chosen(claim: Claim, names: list[str]) -> bool:
    return not names or any(claim.name.startswith(name) for name in names)


@contextmanager
def _scratch(parent: Path | None) -> Iterator[Path]:
    """Give a directory that is gone afterwards, also after an interrupt."""
    directory = Path(tempfile.mkdtemp(prefix="latewood-bench-", dir=parent or Path.cwd()))
    try:
        if shutil.disk_usage(directory).free < _FREE_BYTES_MIN:
            sys.stderr.write(f"less than 16 GiB are free at {directory}: choose another --directory\n")
            raise SystemExit(2)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _warm_up(directory: Path, size: int) -> None:
    """Touch memory once: a virtual machine gets it from its host only then, several times more slowly."""
    _progress("warming up")
    path = directory / "warm"
    with path.open("wb") as file:
        for _ in range(size // MiB):
            file.write(bytes(MiB))
    path.unlink()


def _settle_all(chosen: list[Claim], directory: Path) -> list[Outcome]:
    outcomes = []
    with ExitStack() as stack:
        workers: dict[Kind, Worker] = {}

        def worker(kind: Kind) -> Worker:
            if kind not in workers:
                workers[kind] = stack.enter_context(Worker(kind))
            return workers[kind]

        for number, claim in enumerate(chosen, 1):
            _progress(f"{number}/{len(chosen)} {claim.name}")
            own = directory / claim.name
            own.mkdir()
            outcomes.append(settle(claim, worker, own))
            shutil.rmtree(own)
    _progress("")
    return outcomes


def _report(outcomes: list[Outcome], facts: dict[str, object]) -> str:
    where = (
        "{cpu}, {cores} cores, {memory_gib} GiB, {kernel}, {file_system}, Python {python}, load {load} to {load_after}"
    )
    return "\n".join(
        [
            markdown(outcomes),
            "",
            f"{summary(outcomes)}  {facts['seconds']} s on {where.format(**facts)}; commit {facts['commit']}.",
        ]
    )


def _keep(path: Path, outcomes: list[Outcome], facts: dict[str, object], report: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figures = [
        {
            "claim": outcome.claim.name,
            "title": outcome.claim.title,
            "seconds": round(outcome.seconds, 1),
            "native": outcome.native,
            "pure": outcome.pure,
            "lines": [asdict(line) | {"met": line.met} for line in outcome.lines],
        }
        for outcome in outcomes
    ]
    path.write_text(json.dumps({"machine": facts, "claims": figures}, indent=2) + "\n")
    path.with_suffix(".md").write_text(report + "\n")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
