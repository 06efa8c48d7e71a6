"""A streaming query that fails in the middle of a commit, and another run of it: every record is there once.

Run it: python examples/spark_exactly_once.py
"""

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import latewood
import latewood.spark

home = Path(tempfile.mkdtemp(prefix="latewood-"))
spark = latewood.spark.session("spark-exactly-once")
spark.sparkContext.setLogLevel("OFF")  # One of the queries is to fail.


def run(batches: int) -> None:
    """Copy what is new of one log into another, 500 records a batch."""
    source = spark.readStream.format("latewood").option("maxOffsetsPerTrigger", 500).load(str(home / "events"))
    query = (
        source.select("payload", "timestamp")
        .writeStream.format("latewood")
        .option("checkpointLocation", str(home / "checkpoint"))
        .option("lockTimeout", "1s")
        .trigger(availableNow=True)
        .start(str(home / "copy"))
    )
    query.awaitTermination()
    print(f"a run of {batches} batches")


def count() -> Counter[bytes]:
    with latewood.open(home / "copy", mode="r") as log:
        return Counter(record.payload for record in log.scan())


with latewood.open(home / "events") as log:
    log.append_many([b"event %d" % number for number in range(1000)], durable=True)
run(2)

# Somebody else holds the log: the commit waits, gives up, and the query fails with a batch that Spark will replay.
with latewood.open(home / "events") as log:
    log.append_many([b"event %d" % number for number in range(1000, 1500)], durable=True)
with latewood.open(home / "copy"):
    try:
        run(1)
    except Exception as error:  # noqa: BLE001 - Spark's errors of a query have no common ancestor that is public
        print("the query failed:", next(line for line in str(error).splitlines() if "errors.Locked:" in line).strip())
run(1)

# Spark forgets that its last batch was committed, as if its driver had died a moment too early.
for name in ("2", ".2.crc"):
    (home / "checkpoint" / "commits" / name).unlink(missing_ok=True)
run(1)
found = count()
print(f"{sum(found.values())} records, {len(found)} different ones")
assert set(found.values()) == {1}
assert len(found) == 1500

# A batch write with a txnId may be run as often as one likes.
for _ in range(3):
    orders = spark.range(10).selectExpr("concat('order ', id) AS payload")
    orders.write.format("latewood").mode("append").option("txnId", "orders of today").save(str(home / "orders"))
with latewood.open(home / "orders", mode="r") as log:
    print(f"{log.next_sequence} orders after three runs")
    assert log.next_sequence == 10

spark.stop()
shutil.rmtree(home)
