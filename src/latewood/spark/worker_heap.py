"""What Spark's Python processes do after each task: look for garbage in everything that they have ever imported.

That takes 50 to 100 ms, more than most tasks do, and the next task waits for it.  Modules stay anyway, so they are
taken out of the search once a process has them.
"""

import gc
import sys
from functools import cache
from typing import Final

_DAEMON: Final = "pyspark.daemon"
"""What starts the processes that Spark uses again and again."""


@cache
def settle() -> None:
    """Take all that is there out of the search for garbage, the first time it is called in one of Spark's processes.

    Elsewhere it does nothing: there others decide.
    """
    if runs_as(_DAEMON):
        gc.freeze()


def runs_as(module: str) -> bool:
    """Say whether this process was started to run a module of Spark's, and not by a user."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", None) == module
