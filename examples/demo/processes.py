"""The processes of the demo: a generator that appends events, and a reader that follows them.

Each is this module in a process of its own.  The generator says on stdout what is durable, and only then.
"""

import argparse
import json
import logging
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from examples.demo.events import Event
from latewood.runtime import Store

ROOT: Final = Path(__file__).parents[2]
BATCH: Final = 200
FOREVER: Final = 1 << 40
DATABASE: Final = "events"
_COMMIT_S: Final = 0.2
_MOMENT_S: Final = 0.0015
"""The kill comes so long after a batch was acknowledged: in the middle of the next."""


class Run(NamedTuple):
    """One run of the generator."""

    acknowledged: int
    opened_ms: float
    was_killed: bool


def generate(root: Path, run: int, count: int) -> None:
    """Append events, a durable batch at a time, and print how many are safe."""
    started = time.perf_counter()
    with Store.open(root) as store:
        events = store.database(DATABASE)
        for shard in events.shards:
            shard.log.flush()
        print(f"{(time.perf_counter() - started) * 1000:.1f}", flush=True)
        for first in range(0, count, BATCH):
            batch = [Event(run, number) for number in range(first, min(first + BATCH, count))]
            events.append_many([one.payload() for one in batch], [one.key for one in batch], durable=True)
            print(first + len(batch), flush=True)


def follow(root: Path) -> None:
    """Read all that comes as the reader `billing`, until stdin ends and nothing is left; print what was read."""
    count, in_order, committed = 0, True, time.monotonic()
    with Store.open(root, mode="r") as store, store.database(DATABASE).reader("billing") as reader:
        positions = dict(reader.positions)
        while True:
            is_over = bool(select.select([sys.stdin], [], [], 0)[0])
            records = reader.poll(5_000, timeout=0.1)
            for record in records:
                in_order &= record.sequence == positions[record.shard]
                positions[record.shard] = record.sequence + 1
            count += len(records)
            if is_over or time.monotonic() - committed > _COMMIT_S:
                reader.commit()
                committed = time.monotonic()
            if is_over and not records:
                break
    print(json.dumps({"read": count, "in_order": in_order}))


def run_generator(root: Path, run: int, count: int, *, kill: bool = False) -> Run:
    """Have a run of the generator write so many events; or have it killed in mid-flight once it has."""
    with _started("generate", root, run, FOREVER if kill else count) as process:
        assert process.stdout is not None
        opened_ms, acknowledged = float(process.stdout.readline()), 0
        for line in process.stdout:
            if line.endswith("\n"):  # The kill may have cut the last one.
                acknowledged = int(line)
            if kill and acknowledged >= count and process.poll() is None:
                time.sleep(_MOMENT_S)
                process.kill()
        code = process.wait()
    if code and not kill:
        raise RuntimeError(f"the generator ended with {code}")
    return Run(acknowledged, opened_ms, kill)


@contextmanager
def follower(root: Path) -> Iterator["Follower"]:
    """Have a process follow the events as long as the block runs."""
    with _started("follow", root, 0, 0) as process:
        yield Follower(process)


class Follower:
    """The reader `billing`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def end(self) -> tuple[int, bool]:
        """Let it read to the end; return how many events it had, and whether they were in order."""
        told = json.loads(self._process.communicate()[0])
        return told["read"], told["in_order"]


@contextmanager
def _started(part: str, root: Path, run: int, count: int) -> Iterator[subprocess.Popen[str]]:
    """Start this module as another process, which does not outlive the block."""
    command = [sys.executable, "-m", "examples.demo.processes", part, str(root), str(run), str(count)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def main() -> None:
    """Play a part."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["generate", "follow"])
    parser.add_argument("root", type=Path)
    parser.add_argument("run", type=int)
    parser.add_argument("count", type=int)
    chosen = parser.parse_args()
    logging.getLogger("latewood").setLevel(logging.ERROR)  # It warns of tails that it cuts; here they are the story.
    if chosen.part == "generate":
        generate(chosen.root, chosen.run, chosen.count)
    else:
        follow(chosen.root)


if __name__ == "__main__":
    main()
