"""What Spark's Python processes do after each task: look for garbage in everything that they have ever imported.

That takes 50 to 100 ms, more than most tasks do, and the next task waits for it.  Modules stay anyway, so they are
taken out of the search once a process has them.
"""

import gc
import sys
from functools import cache
from typing import Final

_DAEMON: Final = "pyspark.daemon"


@cache
def settle() -> None:
    """Take all that is there out of the search for garbage, the first time it is called in one of Spark's processes.

    Elsewhere it does nothing: there others decide.
    """
    if is_sparks(sys.modules.get("__main__")):
        gc.freeze()


def is_sparks(main: object) -> bool:
    """Say whether a process with this main module is one that Spark starts for Python, and uses again and again."""
    spec = getattr(main, "__spec__", None)
    return getattr(spec, "name", None) == _DAEMON
