"""A store as it was: by generation, by time, by sequence.

Run it: python examples/spark_time_travel.py
"""

import tempfile
from pathlib import Path

import latewood
import latewood.spark

lake = Path(tempfile.mkdtemp(prefix="latewood-")) / "lake"
generations = []

# %% Three days of prices, each flushed to chunks: each flush is a generation.

with latewood.Store.open(lake) as store:
    prices = store.create_database("prices", keyed=False)
    for day in range(3):
        midnight_ns = (1_767_225_600 + day * 86_400) * 1_000_000_000  # 2026-01-01 and on
        times = [midnight_ns + second * 1_000_000_000 for second in range(100)]
        prices.append_many([b"%d" % (100 + day)] * 100, timestamps_ns=times, durable=True)
        store.run_job("flush", "prices", seal=True)
        generations.append(store.generation)

spark = latewood.spark.session("spark-time-travel")
spark.sparkContext.setLogLevel("ERROR")
path = str(lake / "prices")

# %% What did we know at each generation?

for generation in generations:
    found = spark.read.format("latewood").option("asOfGeneration", generation).load(path)
    newest = found.selectExpr("max(int(string(payload)))").collect()[0][0]
    print(f"generation {generation}: {found.count()} prices, the newest is {newest}")

# %% Since the second day; and exactly these ten.

since = spark.read.format("latewood").option("startingTimestamp", "2026-01-02T00:00:00Z").load(path)
print("since the second day:", since.count())
ten = spark.read.format("latewood").options(startingOffsets='{"0": 95}', endingOffsets='{"0": 105}').load(path)
ten.selectExpr("sequence", "timestamp", "string(payload)").show(3)

spark.stop()
