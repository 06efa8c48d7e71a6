"""A driver to be killed: `python killed_driver.py SCRATCH` writes a stream, flushes and compacts, all at once.

The jobs stop at a step, for good; the sink waits for that at a step of its own, and kills all there is of the driver.
"""

import os
import sys
import threading
from functools import partial
from pathlib import Path

import latewood.spark
from latewood.jobs.handlers import store
from latewood.spark import jobs
from tests.spark.sink_source import register
from tests.spark.test_killed_driver import SINK_STEP, STOPS
from tests.spark.test_sink_stream import start


def main(scratch: Path) -> None:
    left = dict(STOPS)

    def trap(step: str) -> None:
        if step not in left:
            return
        left[step] -= 1
        if left[step] == 0:
            (scratch / step).touch()
            threading.Event().wait()

    store.store_handlers = partial(store.store_handlers, steps=trap)
    spark = latewood.spark.session("driver", spark_log_level="ERROR", spark_driver_memory="1g")
    register(spark)
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    (scratch / "pids").write_text(f"{process.pid} {os.getpid()}")
    compact = partial(jobs.compact, eager=True, target_bytes=1 << 20)
    for job, name in ((jobs.flush, "flush"), (compact, "compact")):
        threading.Thread(target=job, args=(spark, scratch / name / "pond"), daemon=True).start()
    marks = ",".join(STOPS)
    start(spark, scratch, "mortal", at=SINK_STEP, how="kill driver", home=str(scratch), marks=marks).awaitTermination()
    print("nobody killed me")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
