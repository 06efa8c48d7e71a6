"""Run a page's blocks as its reader would: from standard input, in order, in the current directory.

Started by test_docs in an interpreter of its own.  Python blocks share one namespace, and a failing line is
named by its number in the page.  Of a console block, what follows a `$ ` is run, together with its `> ` lines.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any


def run_python(text: str, page: str, line: int, namespace: dict[str, Any]) -> None:
    code = compile("\n" * line + text, page, "exec")
    exec(code, namespace)  # noqa: S102  running the page is what this is for


def run_console(text: str, page: str, line: int) -> None:
    bash = subprocess.Popen(["bash", "-euo", "pipefail", "-c", commands(text)], start_new_session=True)
    try:
        returncode = bash.wait()
    finally:
        with suppress(ProcessLookupError):  # What a failing block left in the background ends with it.
            os.killpg(bash.pid, signal.SIGKILL)
    if returncode:
        sys.exit(f"{page}:{line}: a command of this block exits {returncode}")


def commands(text: str) -> str:
    """What a reader would type, without the prompts and the answers."""
    return "\n".join(line[2:] for line in text.splitlines() if line.startswith(("$ ", "> ")))


def main() -> None:
    page, blocks = json.load(sys.stdin)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for info, line, text in blocks:
        if info == "python":
            run_python(text, page, line, namespace)
        else:
            run_console(text, page, line)


if __name__ == "__main__":
    main()
