"""The end of a stream's planning process: Spark closes the connection, and the process must not complain of that.

Over Unix sockets Spark's own loop writes its farewell to a connection that is gone, and the user would see a traceback
for every query that ends.
"""

import sys
from types import TracebackType
from typing import Final

from latewood.spark.worker_heap import runs_as

_RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"


def leave_quietly() -> None:
    """Have the process, if it is Spark's for planning a stream, say nothing of a connection that is gone."""
    if runs_as(_RUNNER):
        sys.excepthook = quiet_hook


def quiet_hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Tell of an error that ends the process, unless it is a broken pipe."""
    if not issubclass(kind, BrokenPipeError):
        sys.__excepthook__(kind, error, trace)
