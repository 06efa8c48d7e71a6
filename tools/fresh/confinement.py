"""Runs a program, in this system or in a new one, so that it leaves neither a mount nor a process behind.

Each program has namespaces of its own for mounts and processes.  The kernel undoes the mounts and kills the processes
with the namespaces, however they end: so nothing has to be unmounted, after an error or Ctrl-C either.  Mounts are
private; this machine never sees them.  The network is this machine's, loopback too.

Invariant: when `run` returns or raises, every process that the program started has ended.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

TIMED_OUT: Final = 124
"""The exit code of a program that took too long, as of `timeout`."""

PROGRAMS: Final = ("sh", "setpriv", "unshare", "mount", "chroot")
"""What is needed of this machine."""

_END_SECONDS_MAX: Final = 60.0
"""How long the kernel may take to kill all processes of a namespace; a disk that hangs keeps them longer."""

_ENTER: Final = """
set -e
root=$1 user=$2
shift 2
mount -t proc proc "$root/proc"
mount --bind -o ro /sys "$root/sys"
mount --bind /dev "$root/dev"
mount -t devpts -o newinstance,gid=5,mode=620,ptmxmode=0666 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
set +e
"$CHROOT" --userspec="$user" "$root" "$@"
exit $?
"""
"""What the first process of the namespaces does.  It waits for the program instead of turning into it: a first process
adopts every orphan, and only a shell that waits collects the dead among them."""


def run_inside(
    root: Path,
    program: Sequence[str],
    *,
    user: str,
    environment: Mapping[str, str],
    log: IO[bytes],
    seconds_max: float,
) -> int:
    """Run a program in the system at `root` and return its exit code, `TIMED_OUT` if it had to be killed."""
    shell = [_found("sh"), "-c", _ENTER, "enter", str(root), user, *program]
    return run(shell, environment={**environment, "CHROOT": _found("chroot")}, log=log, seconds_max=seconds_max)


def run(program: Sequence[str], *, environment: Mapping[str, str], log: IO[bytes], seconds_max: float) -> int:
    """Run a program of this machine and return its exit code, `TIMED_OUT` if it had to be killed."""
    namespaces = [_found("unshare"), "--mount", "--propagation", "private", "--pid", "--fork", "--mount-proc"]
    process = subprocess.Popen(
        [_found("setpriv"), "--pdeathsig", "KILL", *namespaces, "--kill-child", *program],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C is for the tool, which then ends the program in an orderly way.
    )
    try:
        return process.wait(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        return TIMED_OUT
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill all that still runs.  The death of a namespace's first process is complete once all the others are dead."""
    if process.poll() is not None:
        return
    for child in _children(process.pid):
        os.kill(child, signal.SIGKILL)
    try:
        process.wait(timeout=_END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _found(program: str) -> str:
    """Return the path of a program of this machine: the PATH of a new system may not lead to it."""
    return shutil.which(program) or program
