"""Waking readers in other processes: 8 bytes of shared memory, `u32 flag | u32 epoch`.

A reader arms (reads the epoch, then raises the flag), looks once more for records, and only then waits while the epoch
is what it read.  A writer publishes, fences, and looks at the flag.  Whatever the interleaving, either the reader sees
the record or the writer sees the flag, so no wake is missed.
"""

import platform
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

from latewood.kernel.pure_record import SEAL, U64_MAX, as_writable

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_FLAG: Final = 0
_EPOCH: Final = 1
_WAKE_BYTES: Final = 8
_WAIT: Final = 0
_WAKE: Final = 1
_EVERYBODY: Final = 0x7FFFFFFF
_SYSCALLS: Final = {"x86_64": 202, "aarch64": 98}
_SYSCALL: Final = _SYSCALLS.get(platform.machine()) if sys.platform == "linux" else None
_NAP_NS: Final = 1_000_000


def wake_words(wake: "WriteableBuffer") -> memoryview:
    """Return the flag and the epoch as two words to load and store."""
    view = as_writable(wake)
    if view.nbytes < _WAKE_BYTES:
        raise ValueError("a wake buffer has at least 8 bytes")
    return view[:_WAKE_BYTES].cast("I")


def _fence() -> None:
    """Order the stores before against the loads after: taking a lock is an atomic read-modify-write."""
    threading.Lock().acquire()


def ring(words: memoryview | None) -> None:
    """Wake the readers, if one has armed.  To be called after publishing."""
    if words is None:
        return
    _fence()
    if words[_FLAG]:
        _advance(words)


def _advance(words: memoryview) -> None:
    # The flag goes first: a reader that arms in between has read the old epoch, and will not sleep on it.
    words[_FLAG] = 0
    words[_EPOCH] = words[_EPOCH] + 1 & SEAL
    _futex(words, _WAKE, _EVERYBODY, None)


def arm(wake: "WriteableBuffer") -> int:
    """Ask to be woken, and return the epoch to wait on.  Look for records once more before waiting."""
    words = wake_words(wake)
    epoch = words[_EPOCH]
    words[_FLAG] = 1
    _fence()
    return epoch


def wait(wake: "WriteableBuffer", epoch: int, timeout_ns: int) -> None:
    """Sleep while the epoch is still `epoch`, at most `timeout_ns`.  Returns early for a signal."""
    words = wake_words(wake)
    if not (0 <= epoch <= SEAL and 0 <= timeout_ns <= U64_MAX):
        raise OverflowError("the epoch is not a u32, or the timeout not a u64")
    if _SYSCALL is not None:
        _futex(words, _WAIT, epoch, timeout_ns)
    elif words[_EPOCH] == epoch:
        time.sleep(min(timeout_ns, _NAP_NS) / 1e9)


def wake_all(wake: "WriteableBuffer") -> None:
    """Wake every reader that waits."""
    _advance(wake_words(wake))


def _futex(words: memoryview, operation: int, value: int, timeout_ns: int | None) -> None:
    if _SYSCALL is None:
        return
    import ctypes  # noqa: PLC0415 - it takes 10 ms, which only those who wait need to pay

    class Timespec(ctypes.Structure):
        _fields_ = (("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_int64))

    epoch = ctypes.c_uint32.from_buffer(words, 4)
    timeout = None if timeout_ns is None else ctypes.byref(Timespec(*divmod(timeout_ns, 1_000_000_000)))
    ctypes.CDLL(None).syscall(
        ctypes.c_long(_SYSCALL), ctypes.byref(epoch), ctypes.c_int(operation), ctypes.c_uint32(value), timeout
    )
