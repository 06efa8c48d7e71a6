"""A bug of Spark that keeps us from pruning by filters: it tells when it is mended."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def source() -> type:
    from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo  # noqa: PLC0415 - see conftest

    class Reader(DataSourceReader):
        wanted: int | None = None

        def pushFilters(self, filters: list[Any]) -> Iterator[Any]:  # noqa: N802 - Spark's name
            for one in filters:
                if isinstance(one, EqualTo):
                    self.wanted = one.value
                else:
                    yield one

        def read(self, partition: Any) -> Iterator[tuple[int]]:
            del partition
            return iter([(number,) for number in (1, 1, 2, 3) if self.wanted in (None, number)])

    class Pushing(DataSource):
        @classmethod
        def name(cls) -> str:
            return "pushing"

        def schema(self) -> str:
            return "n int"

        def reader(self, schema: Any) -> Reader:
            del schema
            return Reader()

    return Pushing


def test_pushed_filters_still_leak_into_later_uses_of_a_dataframe(spark: "SparkSession") -> None:
    """Once this fails, Spark is mended and `BatchReader` may learn `pushFilters`."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        spark.dataSource.register(source())
        frame = spark.read.format("pushing").load()
        assert frame.filter("n = 1").count() == 2
        assert frame.count() == 2  # Should be 4.
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_our_reader_takes_no_filters() -> None:
    from pyspark.sql.datasource import DataSourceReader  # noqa: PLC0415 - see conftest

    from latewood.spark.batch import BatchReader  # noqa: PLC0415 - see conftest

    assert BatchReader.pushFilters is DataSourceReader.pushFilters
