"""Collaborators for tests of programs that use Latewood.

`MemFS` is a disk in memory, `CrashFS` one that loses power, and `FakeClock` a clock to move by hand.
"""

from latewood.testing.crash_fs import CrashFS
from latewood.testing.fake_clock import FakeClock
from latewood.testing.mem_fs import Counts, MemFS

__all__ = ["Counts", "CrashFS", "FakeClock", "MemFS"]
