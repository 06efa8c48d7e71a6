"""A driver to be killed: `python sink_driver.py SCRATCH STEP` runs the query of test_sink_stream until its sink's trap.

Run as a program of its own, with the repository on the path.
"""

import os
import sys
from pathlib import Path

import latewood.spark
from tests.spark.sink_source import register
from tests.spark.test_sink_stream import start


def main(scratch: Path, step: str) -> None:
    spark = latewood.spark.session("driver", spark_log_level="ERROR", spark_driver_memory="1g")
    register(spark)
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    (scratch / "pids").write_text(f"{process.pid} {os.getpid()}")
    start(spark, scratch, "mortal", at=step, how="kill driver", home=str(scratch)).awaitTermination()
    print("nobody killed me")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
