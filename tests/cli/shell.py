"""The program under test: in this process through click's runner, as a real process, and on a terminal."""

import json
import os
import pty
import queue
import select
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from click.testing import CliRunner, Result

from latewood.cli.main import program

PROGRAM: Final = [sys.executable, "-m", "latewood.cli"]
TIMEOUT_S: Final = 60
CTRL_C: Final = "\x03"


def run(*arguments: str | Path, stdin: str | bytes | None = None) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(program, [str(argument) for argument in arguments], input=stdin)


def ok(*arguments: str | Path, stdin: str | bytes | None = None) -> str:
    """Run a command that must succeed, and return what it prints."""
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    """Run a command that must succeed, and return the JSON objects that it prints."""
    return [json.loads(line) for line in ok(*arguments, "--format", "jsonl").splitlines()]


def row(*arguments: str | Path) -> dict[str, Any]:
    """Return the one JSON object that a command prints."""
    (found,) = rows(*arguments)
    return found


def complaint(*arguments: str | Path, code: int, stdin: str | bytes | None = None) -> str:
    """Run a command that must fail with this code and one line on stderr, and return that line."""
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == code, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("latewood: ")
    assert "bug" not in line
    return line.removeprefix("latewood: ")


class Process:
    """A command in a process of its own, whose output can be waited for."""

    def __init__(self, *arguments: str | Path, prefix: Sequence[str] = ()) -> None:
        self.popen = subprocess.Popen(
            [*prefix, *PROGRAM, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._errors: list[str] = []
        assert self.popen.stdout
        assert self.popen.stderr
        self._pumps = [
            threading.Thread(target=self._pump, args=(self.popen.stdout, self._lines.put), daemon=True),
            threading.Thread(target=self._pump, args=(self.popen.stderr, self._errors.append), daemon=True),
        ]
        for pump in self._pumps:
            pump.start()

    def write(self, text: str) -> None:
        """Write to its stdin, as a person who types."""
        assert self.popen.stdin
        self.popen.stdin.write(text.encode())

    def line(self) -> str:
        """Wait for the next line of its stdout."""
        line = self._lines.get(timeout=TIMEOUT_S)
        assert line is not None, f"it ended: {self.errors()}"
        return line

    def lines(self, count: int) -> list[str]:
        """Wait for so many lines."""
        return [self.line() for _ in range(count)]

    def rest(self) -> list[str]:
        """Wait for its end, and return the lines not yet taken."""
        return list(iter(lambda: self._lines.get(timeout=TIMEOUT_S), None))

    def end(self) -> int:
        """Close its stdin, wait for its end, and return its exit code."""
        assert self.popen.stdin
        self.popen.stdin.close()
        code = self.popen.wait(TIMEOUT_S)
        for pump in self._pumps:
            pump.join(TIMEOUT_S)
        return code

    def errors(self) -> list[str]:
        """Return the lines of its stderr."""
        return self._errors

    def _pump(self, stream: IO[bytes], put: Any) -> None:
        for line in stream:
            put(line.decode().removesuffix("\n"))
        if put == self._lines.put:
            put(None)


@contextmanager
def process(*arguments: str | Path, prefix: Sequence[str] = ()) -> Iterator[Process]:
    """Start a command, and see to it that it ends."""
    started = Process(*arguments, prefix=prefix)
    try:
        yield started
    finally:
        started.popen.kill()
        started.end()
        for stream in (started.popen.stdout, started.popen.stderr):
            assert stream
            stream.close()


def on_terminal(
    *arguments: str | Path, typed: str = "", after: str = "", hide: Sequence[str] = (), columns: int = 200
) -> tuple[int, str]:
    """Run a command on a terminal; return its exit code and what the terminal shows.

    A text is `typed` once `after` was shown.  `hide` names packages that the command must not find.
    """
    script = (
        "import os, sys; os.close(os.open(os.ttyname(0), os.O_RDWR))\n"  # so that Ctrl-C reaches the process
        f"sys.modules.update(dict.fromkeys({list(hide)}))\n"
        "from latewood.cli.main import main; main()"
    )
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), "LINES": "50"}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    ) as popen:
        os.close(theirs)
        shown = _converse(ours, typed, after)
        os.close(ours)
        return popen.wait(TIMEOUT_S), shown.replace("\r\n", "\n")


def _converse(terminal: int, typed: str, after: str) -> str:
    """Type once `after` was shown, and return all that is shown until the program ends.

    A Ctrl-C between Python's prompt and its read goes unheard; as a person would, we press it again.
    """
    shown, waiting = "", True
    for _ in range(TIMEOUT_S):
        if waiting and typed and after in shown:
            os.write(terminal, typed.encode())
            waiting = False
        while select.select([terminal], [], [], 1)[0]:
            piece = _read(terminal)
            if not piece:
                return shown
            shown += piece
            if waiting and typed and after in shown:
                break
        waiting = waiting or typed == CTRL_C
    message = f"it did not end, and showed this: {shown}"
    raise TimeoutError(message)


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, 65536).decode()
    except OSError:  # Linux says EIO when the other side of a terminal is closed.
        return ""
