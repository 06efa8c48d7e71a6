"""A Spark session that works: this interpreter, this machine, Arrow, and a Java that Spark can use.

None of it is needed where there is a session already.
"""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from latewood.errors import NotFoundError
from latewood.spark.java import find_java, home_for_spark

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
        alone = is_alone(settings["spark.master"])
        prepare_environment(alone=alone)
        settings = {**(_ALONE if alone else {}), **settings}
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


def prepare_environment(*, alone: bool = True) -> None:
    """Set what Spark reads from the environment before it starts: interpreter, address, Java.  What is set stays.

    Raises:
        NotFoundError: there is no Java that Spark can use; it says what was looked at.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if alone:
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    java = find_java()
    if java.home is None:
        raise NotFoundError(java.why_none())
    os.environ["JAVA_HOME"] = home_for_spark(java)  # Spark looks nowhere else if it is set, and at no version.


def _dotted(name: str) -> str:
    return name if "." in name else name.replace("_", ".")
