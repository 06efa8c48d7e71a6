"""The processes of a benchmark: workers that do rounds when told, and the children that these start.

The log with its native kernel, the log with its pure one, and the peers have a worker each, so that none finds
the memory, the threads or the modules of another.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from bench.measure import ROOT, Sample

Kind = Literal["native", "pure", "peers"]


class Job(NamedTuple):
    """A workload by name, and its arguments."""

    workload: str
    """`module:Class`"""
    arguments: dict[str, Any]


class Worker:
    """A process that prepares workloads, does rounds of them, and closes them."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._process = _start("bench.worker", kind, environment={"LATEWOOD_PURE": "1" if kind == "pure" else "0"})

    def prepare(self, key: str, job: Job, directory: Path) -> None:
        """Have a workload made and prepared, to be known as `key`, in a directory of its own inside this one."""
        workload, arguments = job
        self._ask({"prepare": key, "workload": workload, "arguments": arguments, "directory": str(directory)})

    def round(self, key: str) -> Sample:
        """Have it done once more."""
        sample: Sample = self._ask({"round": key})
        return sample

    def close(self, key: str) -> None:
        """Have it cleaned up."""
        self._ask({"close": key})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _ask(self, question: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            message = f"the {self.kind} worker ended while asked to {question}; its error is above"
            raise RuntimeError(message)
        return json.loads(answer)


def start_child(*arguments: str) -> subprocess.Popen[bytes]:
    """Start the other process of a workload, with the kernel of this one."""
    return _start("bench.child", *arguments, environment={})


def _start(module: str, *arguments: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(entry for entry in (str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")) if entry)
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdin=subprocess.PIPE if module == "bench.worker" else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
