"""A streaming query that is a named reader: it stops, records come, it goes on where it was.

Run it: python examples/spark_streaming.py
"""

import tempfile
from pathlib import Path

import latewood
import latewood.spark

home = Path(tempfile.mkdtemp(prefix="latewood-"))
spark = latewood.spark.session("spark-streaming")
spark.sparkContext.setLogLevel("ERROR")


def run() -> None:
    """Read all that is there now."""
    stream = (
        spark.readStream.format("latewood")
        .option("reader", "etl")
        .option("maxOffsetsPerTrigger", 400)
        .option("columns", "sequence,length")
        .load(str(home / "events"))
    )
    writer = stream.writeStream.option("checkpointLocation", str(home / "checkpoint")).trigger(availableNow=True)
    writer.start(str(home / "out")).awaitTermination()


def report(when: str) -> None:
    with latewood.open(home / "events", mode="r") as log:
        lags = {reader.name: reader.lag for reader in log.readers()}
    print(f"{when}: {spark.read.parquet(str(home / 'out')).count()} records in the output, lag {lags}")


with latewood.open(home / "events") as log:
    log.append_many([b"event %d" % number for number in range(1000)], durable=True)
run()
report("after the first run")

with latewood.open(home / "events") as log:
    log.append_many([b"event %d" % number for number in range(1000, 1500)], durable=True)
    log.cleanup()  # Keeps what the query has still to read.
run()
report("after the second run")

spark.stop()
