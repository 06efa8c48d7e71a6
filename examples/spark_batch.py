"""Spark over a log and a store: records, metadata as tables, and one table over log and chunks.

Run it: python examples/spark_batch.py
"""

import json
import tempfile
from pathlib import Path

import latewood
import latewood.spark

home = Path(tempfile.mkdtemp(prefix="latewood-"))
lake = home / "lake"

# %% Some clicks: half of them in chunks, half in the log.

with latewood.Store.open(lake) as store:
    clicks = store.create_database("clicks", shards=2)
    for half in range(2):
        events = [{"user": number % 9, "page": f"/p{number % 5}"} for number in range(half * 5000, half * 5000 + 5000)]
        keys = [f"user-{event['user']}".encode() for event in events]
        clicks.append_many([json.dumps(event).encode() for event in events], keys, durable=True)
        if not half:
            store.run_job("flush", "clicks", seal=True)

spark = latewood.spark.session("spark-batch")
spark.sparkContext.setLogLevel("ERROR")

# %% One table over all of it; nothing to register.

table = latewood.spark.table(spark, str(lake / "clicks"), columns="key,payload")
table.selectExpr("get_json_object(string(payload), '$.page') AS page").groupBy("page").count().orderBy("page").show()

# %% How many?  Nobody needs to read them for that.

print("records:", latewood.spark.count(spark, str(lake)))

# %% The log itself, in SQL.

for view in ("shards", "chunks", "jobs"):
    spark.read.format("latewood").option("view", view).load(str(lake)).createOrReplaceTempView(view)
spark.sql("SELECT database, shard, records, segments, chunks FROM shards ORDER BY ALL").show()
spark.sql("SELECT kind, state, count(*) AS jobs FROM jobs GROUP BY ALL").show()

spark.stop()
