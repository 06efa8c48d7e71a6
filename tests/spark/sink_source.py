"""`format("mortal")`: the sink, dying or failing at a step that the option `at` names, once: a file says that it has.

Whoever kills a driver first waits for the files that the option `marks` names.

Spark's processes get this module by value: they cannot import the tests.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from latewood.spark.sink import BatchSink, Sink, StreamSink, batch_writer, stream_writer

OURS = ("at", "how", "home", "marks")
WAIT_S = 200


class Trap:
    """Springs once, at one step: raises, or kills this process, or the whole of Spark."""

    def __init__(self, options: dict[str, str]) -> None:
        self.at, self.how = options["at"], options["how"]
        self.scratch = Path(options["home"])
        self.marks = [self.scratch / mark for mark in options.get("marks", "").split(",") if mark]

    def __call__(self, step: str) -> None:
        sprung = self.scratch / "sprung"
        if step != self.at or sprung.exists():
            return
        sprung.write_text(step)
        if self.how == "raise":
            raise RuntimeError(f"a trap at {step!r}")
        if self.how == "kill driver":
            deadline = time.monotonic() + WAIT_S
            while not all(mark.exists() for mark in self.marks):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not all of {self.marks} have come")
                time.sleep(0.05)
            for pid in (self.scratch / "pids").read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class MortalBatchSink(BatchSink):
    def __init__(self, sink: Sink, trap: Trap) -> None:
        super().__init__(sink)
        self.trap = trap

    def step(self, name: str) -> None:
        self.trap(name)


class MortalStreamSink(StreamSink):
    def __init__(self, sink: Sink, trap: Trap) -> None:
        super().__init__(sink)
        self.trap = trap

    def step(self, name: str) -> None:
        self.trap(name)


class MortalSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "mortal"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        return MortalBatchSink(batch_writer(self._plain(), schema, overwrite).sink, Trap(dict(self.options)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - as above
        return MortalStreamSink(stream_writer(self._plain(), schema, overwrite).sink, Trap(dict(self.options)))

    def _plain(self) -> dict[str, Any]:
        return {name: value for name, value in self.options.items() if name not in OURS}


def register(spark: Any) -> None:
    """Make the format known to a session."""
    import sys  # noqa: PLC0415 - this module is sent by value

    from pyspark import cloudpickle  # noqa: PLC0415 - as above

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    spark.dataSource.register(MortalSource)
