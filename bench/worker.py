"""`python -m bench.worker KIND`: does rounds of workloads, as lines of JSON ask it to."""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.workloads import Workload


class _Bench:
    """The workloads that are prepared here."""

    def __init__(self) -> None:
        self._workloads: dict[str, Workload] = {}

    def answer(self, question: dict[str, Any]) -> Any:
        """Do what one line asks for."""
        if (key := question.get("prepare")) is not None:
            module, _, name = question["workload"].partition(":")
            make = getattr(importlib.import_module(f"bench.{module}"), name)
            directory = Path(question["directory"], key)
            directory.mkdir()
            self._workloads[key] = make(directory, **question["arguments"])
            self._workloads[key].prepare()
            return None
        if (key := question.get("round")) is not None:
            return self._workloads[key].round()
        self._workloads.pop(question["close"]).close()
        return None


def main() -> None:
    """Answer until nobody asks."""
    if sys.argv[1] != "peers":
        from bench import ours  # noqa: F401, PLC0415 - registers the log, which no peer shall load
        from latewood import kernel  # noqa: PLC0415 - as above

        assert sys.argv[1] == kernel.NAME, f"{kernel.NAME} kernel in the {sys.argv[1]} worker: make setup"
    # Whatever a peer prints must not pass for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    bench = _Bench()
    for line in sys.stdin:
        answers.write(json.dumps(bench.answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
