"""The DataSource: names, options, schema; everything else is delegated.

Spark makes one in a process of its own for each step, pickles it and sends it along, so it holds options and nothing
else, and imports what it needs when it needs it.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from latewood.spark.options import ReadOptions, parse_options
from latewood.spark.worker_heap import settle

if TYPE_CHECKING:
    from latewood.spark.columns import Shape

# ruff: noqa: PLC0415, N802 - imported where it is needed; the names are Spark's


class LatewoodSource(DataSource):
    """`format("latewood")`."""

    @classmethod
    def name(cls) -> str:
        """Return what it is called."""
        return "latewood"

    def schema(self) -> StructType:
        """Return the columns of what is read.

        Raises:
            UsageError: an option is not understood.
            NotFoundError: nothing is there.
        """
        from latewood.spark.schema import table_schema

        options = parse_options(self.options)
        schema = table_schema(options, _shape(options))
        settle()
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader."""
        options = self._checked(schema, streaming=False)
        if options.view != "records":
            from latewood.spark.views import ViewReader

            return ViewReader(options, schema)
        from latewood.spark.batch import BatchReader

        return BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the streaming reader."""
        from latewood.spark.stream import StreamReader

        return StreamReader(self._checked(schema, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """Return the batch writer."""
        from latewood.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001 - as above
        """Return the streaming writer."""
        from latewood.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def _checked(self, schema: StructType, *, streaming: bool) -> ReadOptions:
        from latewood.spark.schema import check_schema

        options = parse_options(self.options, streaming=streaming)
        check_schema(schema, options, _shape(options))
        return options


def _shape(options: ReadOptions) -> "Shape":
    from latewood.spark.survey import shape_of

    return shape_of(options)
