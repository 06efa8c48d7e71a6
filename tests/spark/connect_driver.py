"""Spark Connect in two processes: `connect_driver.py server PORT SCRATCH`, until stdin ends; `client URL SCRATCH`."""

import json
import sys
from pathlib import Path
from typing import Any

import latewood.spark
from latewood.spark import jobs


def serve(port: int, scratch: Path) -> None:
    spark = latewood.spark.session(
        "server",
        spark_plugins="org.apache.spark.sql.connect.SparkConnectPlugin",
        spark_connect_grpc_binding_port=port,
        spark_connect_grpc_binding_address="127.0.0.1",
        spark_log_level="ERROR",
        spark_local_dir=scratch / "local",
    )
    print("ready", flush=True)
    sys.stdin.read()
    spark.stop()


def work(url: str, scratch: Path) -> None:
    spark = latewood.spark.session("client", spark_remote=url)
    found: dict[str, Any] = {"kind": type(spark).__module__}
    found["log"] = spark.read.format("latewood").load(str(scratch / "events")).count()
    found["table"] = latewood.spark.table(spark, str(scratch / "lake" / "clicks")).distinct().count()
    found["count"] = latewood.spark.count(spark, str(scratch / "lake" / "clicks"))
    segments = spark.read.format("latewood").option("view", "segments").load(str(scratch / "events"))
    found["segments"] = segments.selectExpr("sum(record_count)").collect()[0][0]
    for _ in range(2):
        orders = spark.range(10).selectExpr("concat('order ', id) AS payload")
        orders.write.format("latewood").mode("append").option("txnId", "today").save(str(scratch / "orders"))
    found["once"] = latewood.spark.count(spark, str(scratch / "orders"))
    stream = spark.readStream.format("latewood").option("maxOffsetsPerTrigger", 400).load(str(scratch / "events"))
    writer = stream.select("payload").writeStream.format("latewood")
    writer = writer.option("checkpointLocation", str(scratch / "checkpoint")).trigger(availableNow=True)
    writer.start(str(scratch / "copy")).awaitTermination()
    found["streamed"] = latewood.spark.count(spark, str(scratch / "copy"))
    try:
        spark.read.format("latewood").option("startingOfset", 1).load(str(scratch / "events")).count()
    except Exception as error:  # noqa: BLE001 - whatever Spark makes of it, our text must be in it
        found["wrong option"] = "perhaps you meant startingOffsets" in str(error)
    found["jobs"] = [(one.kind, one.database, one.done) for one in jobs.flush(spark, scratch / "lake" / "clicks")]
    found["sound"] = [(one["is_sound"], one["database"]) for one in jobs.verify(spark, scratch / "lake")]
    found["flushed"] = latewood.spark.count(spark, str(scratch / "lake" / "clicks"))
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve(int(sys.argv[2]), Path(sys.argv[3]))
    else:
        work(sys.argv[2], Path(sys.argv[3]))
