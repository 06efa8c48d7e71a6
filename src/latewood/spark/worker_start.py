"""Second half of the start of a Python process of Spark: give pyspark the connection that the first half made.

    python -P worker_start.py -m pyspark.MODULE [ARGUMENT ...]

`worker_connect` has connected to the JVM; LATEWOOD_WORKER_CONNECTION in the environment is the descriptor.  Pyspark's
first attempt to connect gets this connection; all else is as with `python -m MODULE`.

Why: docs/adr/0027-how-spark-starts.md
"""

import os
import runpy
import socket
import sys
from typing import Any, Final

CONNECTION: Final = "LATEWOOD_WORKER_CONNECTION"
"""As in `worker_connect`, which cannot be imported from a script without importing the package around it."""
_BUFFER_BYTES: Final = "65536"
"""What pyspark reads and writes at a time where Spark's own setting is not in the environment."""


def hand_over(connection: socket.socket) -> None:
    """Replace pyspark's function that connects: its first call, the one for the JVM, returns this connection."""
    from pyspark import util  # noqa: PLC0415 - `main` has put where it is on the path by then

    original, ready = util.local_connect_and_auth, [connection]

    def connect_and_auth(conn_info: str | int | None, auth_secret: str | None) -> tuple[Any, ...]:
        if not ready:
            return original(conn_info, auth_secret)
        buffer_bytes = int(os.environ.get("SPARK_BUFFER_SIZE", _BUFFER_BYTES))
        return ready[0].makefile("rwb", buffer_bytes), ready.pop()

    util.local_connect_and_auth = connect_and_auth


def main() -> None:
    """Run the module as `python -m` does, with the connection of the first half."""
    connection = socket.socket(fileno=int(os.environ.pop(CONNECTION)))
    connection.set_inheritable(False)
    connection.settimeout(int(os.environ.get("SPARK_AUTH_SOCKET_TIMEOUT", "15")))
    sys.path.insert(0, str(os.getcwd()))  # noqa: PTH109 - as `-m` does; -P left the directory of this script out
    hand_over(connection)
    _, _, module, *arguments = sys.argv
    sys.argv[:] = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
