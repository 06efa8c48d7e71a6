"""First half of the start of a Python process of Spark: connect to the JVM, before anything else is loaded.

    python -I -S worker_connect.py START PYSPARK -m pyspark.MODULE [ARGUMENT ...]

Spark starts the reader of a stream as `python -m MODULE`, and gives up if that has not connected within 10 s, which no
setting changes.  The module imports nearly all of pyspark, numpy and pyarrow before it connects: 0.9 s of CPU time, or
more than 10 s where twenty other processes want the same two cores.  This script connects after 0.012 s.  Then its
process becomes `python -P START -m MODULE`, which hands the connection over; what that imports has no time limit.

Archives within PYSPARK, the directory where pyspark is installed, leave PYTHONPATH: Spark puts a zip of the same
modules first, and Python compiles those anew in each process, which is half of the 0.9 s.

A script, whose imports are all that matters: no `socket`, no `typing`.   Why: docs/adr/0027-how-spark-starts.md
"""

import os
import sys
from _socket import AF_INET, AF_INET6, AF_UNIX, SOCK_STREAM
from _socket import socket as Socket  # noqa: N812 - a class; the module around it costs as much as all the rest

CONNECTION = "LATEWOOD_WORKER_CONNECTION"
"""Tells the second half the descriptor of the connection."""
_TIMEOUT_S = "15"
"""Bounds the wait for the JVM, as pyspark does, where Spark's own setting is not in the environment."""
_LENGTH_BYTES = 4


def connect(environ: "os._Environ[str] | dict[str, str]") -> "Socket | None":
    """Return an authenticated connection to the JVM; None if the JVM does not wait for one from this process.

    It does not wait for one from the daemon, from which workers are forked: the JVM connects to that.
    """
    path, port = environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH"), environ.get("PYTHON_WORKER_FACTORY_PORT")
    timeout_s = int(environ.get("SPARK_AUTH_SOCKET_TIMEOUT", _TIMEOUT_S))
    if path:
        connection = Socket(AF_UNIX, SOCK_STREAM)
        connection.settimeout(timeout_s)
        connection.connect(path)
        return connection
    if not port:
        return None
    is_v6 = environ.get("SPARK_PREFER_IPV6", "").lower() == "true"
    connection = Socket(AF_INET6 if is_v6 else AF_INET, SOCK_STREAM)
    connection.settimeout(timeout_s)
    try:
        connection.connect(("::1" if is_v6 else "127.0.0.1", int(port)))
        _show(connection, environ["PYTHON_WORKER_FACTORY_SECRET"].encode())
    except BaseException:
        connection.close()
        raise
    return connection


def without_archives(paths: str, installed: str) -> str:
    """Return a PYTHONPATH without archives that lie within a directory.  Pure."""
    kept = [
        path
        for path in paths.split(os.pathsep)
        if not (installed and path.startswith(installed + os.sep) and path.endswith((".zip", ".jar")))
    ]
    return os.pathsep.join(kept)


def _show(connection: Socket, secret: bytes) -> None:
    """Show the JVM its secret: a length, big-endian, and the bytes; it answers in the same way."""
    connection.sendall(len(secret).to_bytes(_LENGTH_BYTES, "big") + secret)
    answer = _received(connection, int.from_bytes(_received(connection, _LENGTH_BYTES), "big"))
    if answer != b"ok":
        raise ConnectionRefusedError(f"the JVM answers {answer!r}")


def _received(connection: Socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionResetError("the JVM closed the connection")
        data += part
    return data


def main() -> None:
    """Connect, and become the second half; or become the module itself, if the JVM waits for no connection."""
    connection = connect(os.environ)
    start, installed, *module = sys.argv[1:]
    os.environ["PYTHONPATH"] = without_archives(os.environ.get("PYTHONPATH", ""), installed)
    if connection is not None:
        os.set_inheritable(connection.fileno(), True)  # noqa: FBT003 - it has no name
        os.environ[CONNECTION] = str(connection.fileno())
        module = ["-P", start, *module]
    os.execv(sys.executable, [sys.executable, *module])  # noqa: S606 - this interpreter


if __name__ == "__main__":
    main()
