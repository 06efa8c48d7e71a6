"""A driver whose environment has the keys: `python encrypted_driver.py LAKE SCRATCH` reads a batch and a stream."""

import json
import sys
from pathlib import Path

import latewood
import latewood.spark


def main(lake: Path, scratch: Path) -> None:
    spark = latewood.spark.session("encrypted", spark_log_level="ERROR", spark_local_dir=scratch / "local")
    path = str(lake / "secrets")
    frame = spark.read.format("latewood").option("columns", "payload").load(path)
    counts = {"batch": frame.count(), "distinct": frame.distinct().count()}
    stream = spark.readStream.format("latewood").option("columns", "payload").load(path)
    writer = stream.writeStream.format("latewood").option("checkpointLocation", str(scratch / "checkpoint"))
    writer.trigger(availableNow=True).start(str(scratch / "copy")).awaitTermination()
    with latewood.open(scratch / "copy", mode="r") as log:
        counts["streamed"] = len({record.payload for record in log.scan()})
    print(json.dumps(counts))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
