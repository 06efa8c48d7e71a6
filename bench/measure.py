"""Clocks, medians, memory, and what is to be known of the machine.

A figure that is not a ratio means little without its machine: `machine` goes into every result.
"""

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

Sample = dict[str, float]
"""What one round measured, by the name of the figure."""

ROOT: Final = Path(__file__).resolve().parents[1]
PEERS: Final = ("lmdb", "rocksdict", "persist-queue", "diskcache", "pyarrow", "google-crc32c")
NANOSECONDS: Final = 1_000_000_000
MiB: Final = 1 << 20
GiB: Final = 1 << 30


class Stopwatch:
    """Wall time, and the CPU time of this thread and of the whole process, from when it is made."""

    def __init__(self) -> None:
        self._process = time.process_time_ns()
        self._thread = time.thread_time_ns()
        self._wall = time.perf_counter_ns()

    def seconds(self) -> float:
        """Return the wall time so far."""
        return (time.perf_counter_ns() - self._wall) / NANOSECONDS

    def per(self, count: int) -> Sample:
        """Return the times so far, in nanoseconds for each of `count` things."""
        wall = time.perf_counter_ns() - self._wall
        thread = time.thread_time_ns() - self._thread
        process = time.process_time_ns() - self._process
        return {"wall_ns": wall / count, "thread_ns": thread / count, "process_ns": process / count}


def median(samples: Sequence[Sample]) -> Sample:
    """Return the median of each figure."""
    return {name: statistics.median(sample[name] for sample in samples) for name in samples[0]}


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value that `share` of all are at or below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def latencies(nanoseconds: Sequence[int]) -> Sample:
    """Return the median and the tail of single times."""
    mean = sum(nanoseconds) / len(nanoseconds)
    return {"wall_ns": percentile(nanoseconds, 0.5), "p99_ns": percentile(nanoseconds, 0.99), "mean_ns": mean}


def resident() -> dict[str, int]:
    """Return this process's bytes in memory: its own, and all with the files that it has mapped."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(status[field].split()[0]) * 1024 for name, field in (("own", "RssAnon"), ("all", "VmRSS"))}


def machine(directory: Path) -> dict[str, object]:
    """Return what the figures were measured on."""
    return {
        "cpu": _first_value("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GiB, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "file_system": _file_system(directory),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PEERS},
        "load": load(),
    }


def load() -> float:
    """Return how many processes wanted to run, on average over the last minute."""
    return round(os.getloadavg()[0], 1)


def commit() -> str:
    """Return the commit that was measured; changes on top of it are told."""
    head = _output("git", "rev-parse", "--short", "HEAD")
    return f"{head} and the working tree" if _output("git", "status", "--porcelain", "src", "native") else head


def _output(*command: str) -> str:
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else "working tree"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _first_value(path: str, field: str) -> str | None:
    lines = Path(path).read_text().splitlines() if Path(path).exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(field)), None)


def _file_system(directory: Path) -> str:
    """Return the type of the mount that holds `directory`."""
    held = directory.resolve()
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    holding = [(len(at), kind) for _, at, kind, *_ in mounts if held.is_relative_to(at)]
    return max(holding)[1] if holding else "unknown"
