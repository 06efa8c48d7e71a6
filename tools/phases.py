"""What the set-up shows: one line for each phase when it ends, and on a terminal what is under way and for how long."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_LOG_LINES: Final = 25
"""The end of the log that a failure shows."""
_TICK_S: Final = 1.0


class SetupError(Exception):
    """A phase failed; the message says what to do."""


@dataclass
class Phase:
    """One phase under way."""

    name: str
    usually: str
    started: float = field(default_factory=time.monotonic)
    note: str = ""
    """Set by the phase: what came of it."""

    @property
    def seconds(self) -> int:
        """How long it runs by now."""
        return round(time.monotonic() - self.started)


class Phases:
    """Prints phases to stderr, and keeps in a log what their programs print.  Phases may run side by side."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._running: list[Phase] = []
        self._programs: list[subprocess.Popen[str]] = []
        self._is_stopped = False
        self._lock = threading.Lock()

    @contextmanager
    def phase(self, name: str, usually: str) -> Iterator[Phase]:
        """Time a block, and print its line when it ends well."""
        phase = Phase(name, usually)
        with self._lock:
            self._running.append(phase)
        if not sys.stderr.isatty():
            self._print(f"  {name} ...  usually {usually}")
        over = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(over,), daemon=True)
        ticker.start()
        try:
            yield phase
        finally:
            over.set()
            ticker.join()
            with self._lock:
                self._running.remove(phase)
        self._print(f"  {name:<15}{phase.seconds:>4} s" + (f"  {phase.note}" if phase.note else ""))

    def run(self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
        """Run a program; its output goes to the log.

        Raises:
            SetupError: it failed, with the end of its output; or the set-up was stopped.
        """
        with self._lock:
            if self._is_stopped:
                raise SetupError("stopped")
            program = subprocess.Popen(
                list(command),
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            self._programs.append(program)
        output, _ = program.communicate()
        self.write(output)
        if program.returncode:
            end = "\n".join(output.splitlines()[-_LOG_LINES:])
            words = " ".join(str(word) for word in command[:5])
            raise SetupError(f"{words} ... failed:\n{end}\nAll of it is in {self._log}.  Mend that and run make again.")

    def stop(self) -> None:
        """End the programs that run, and start no other."""
        with self._lock:
            self._is_stopped = True
            for program in self._programs:
                program.terminate()  # One that has ended already gets no signal.

    def write(self, text: str) -> None:
        """Append to the log, where there is a directory for it."""
        with self._lock, self._log.open("a", encoding="utf-8") as log:
            log.write(text)

    def _tick(self, over: threading.Event) -> None:
        while sys.stderr.isatty() and not over.wait(_TICK_S):
            with self._lock:
                shown = ", ".join(f"{one.name} {one.seconds} s (usually {one.usually})" for one in self._running)
                print(f"\r\x1b[K  {shown}"[: os.get_terminal_size(2).columns], end="", file=sys.stderr, flush=True)

    def _print(self, line: str) -> None:
        with self._lock:
            clear = "\r\x1b[K" if sys.stderr.isatty() else ""
            print(f"{clear}{line}", file=sys.stderr, flush=True)
