"""Latewood for Spark: logs, databases and stores as tables, batch and streaming, read and written.

`spark.read.format("latewood").load(path)` needs none of this; `pyspark_latewood` registers the format by itself.  Names
are looked up when they are asked for, so that planning loads without pyspark.   How to use it: docs/guide/spark.md
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from latewood.runtime import spark_jobs as jobs
    from latewood.spark.local_session import prepare_environment, session
    from latewood.spark.whole_table import count, table

__all__ = ["count", "jobs", "prepare_environment", "session", "table"]

_HOMES: Final = {
    "count": "whole_table",
    "prepare_environment": "local_session",
    "session": "local_session",
    "table": "whole_table",
}


def __getattr__(name: str) -> object:
    """Look up what needs pyspark."""
    if name == "jobs":  # Jobs and Spark are siblings: what ties them together is above both.
        return import_module("latewood.runtime.spark_jobs")
    if name not in _HOMES:
        message = f"module 'latewood.spark' has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"latewood.spark.{_HOMES[name]}"), name)
