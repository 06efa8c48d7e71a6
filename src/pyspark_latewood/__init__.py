"""Registers `format("latewood")` with Spark: it looks for packages called `pyspark_…` with a `DefaultSource`."""

from latewood.spark.source import LatewoodSource as DefaultSource

__all__ = ["DefaultSource"]
