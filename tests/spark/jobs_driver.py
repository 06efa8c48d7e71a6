"""A driver to be killed: `python jobs_driver.py STORE STEP COUNT` flushes on Spark until a step comes for that time."""

import os
import signal
import sys
from functools import partial

import latewood.spark
from latewood.jobs.handlers import store
from latewood.spark import jobs


def main(root: str, step: str, count: int) -> None:
    left = count

    def trap(name: str) -> None:
        nonlocal left
        left -= name == step
        if left == 0 and name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    store.store_handlers = partial(store.store_handlers, steps=trap)
    spark = latewood.spark.session("driver", spark_log_level="ERROR", spark_driver_memory="1g")
    jobs.flush(spark, root)
    print("nobody killed me")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
