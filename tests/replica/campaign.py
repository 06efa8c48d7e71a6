"""The long campaign: real processes, every fault that `chaos` knows, and clients that check every acknowledged record.

    python -m tests.replica.campaign --operations 1000000 --seed 1 --totals totals.json

An operation is a record that was acknowledged, and compared in the end with what every node has.  Most writers write
one at a time, some in batches.  What was checked is added to the totals, so a campaign can be run in pieces: each goes
on until the totals have come to `--operations`, or for `--minutes`.  Exits 1 if anything was lost, is there twice, or
differs between nodes; the files are kept then.
"""

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import latewood
from latewood import AsyncClient, NotFoundError
from latewood.replica.native import check_native
from tests.replica.chaos import FAULTS, Stage, small_disk
from tests.replica.checking import TIMEOUT_MS, Account, Writers, WrongError, check
from tests.replica.network import Network
from tests.replica.processes import ClusterProcesses

SMALL: Final = (
    "[storage]\nsnapshot_bytes = 2097152\nparent_segment_bytes = 1048576\npartition_segment_bytes = 1048576\n"
    "[limits]\npayload_bytes_max = 65536\n"
)
"""Logs roll, snapshots are taken and the parent log forgets many times in a minute."""
HASTY_MS: Final = 400
"""What the writers of batches wait for an answer: less than an election takes, so that they are often in doubt."""
DISK_NODE: Final = 1
ROUNDS_BETWEEN_CHECKS: Final = 4

Totals = dict[str, Any]


class Campaign:
    """One piece of a campaign: one cluster, from its founding to the last check."""

    def __init__(self, arguments: argparse.Namespace, totals: Totals) -> None:
        self._arguments, self._totals = arguments, totals
        self._faults: dict[str, int] = {}
        self.seed = arguments.seed + len(totals["seeds"])
        self._chance = random.Random(self.seed)
        self._began = time.monotonic()
        self._before = totals["operations"]
        self._checked: dict[int, int] = {}
        self.writers = [
            Writers([Account(1, 100), Account(2, 100)], each=arguments.writers),
            Writers([Account(3, 100), Account(4, 100)], each=2, batch=arguments.batch),
        ]
        self._lives = 0

    @property
    def operations(self) -> int:
        return sum(writers.count for writers in self.writers)

    async def run(self, stage: Stage, clients: list[AsyncClient]) -> None:
        """Let one thing after another happen, until enough was written; each kind of writers has its client."""
        stage.writers = self.writers
        accounts = [account for writers in self.writers for account in writers.accounts]
        try:
            self._start(clients)
            order: list[str] = []
            rounds = 0
            while not self._is_over(rounds):
                order = order or self._chance.sample(self._arguments.faults, len(self._arguments.faults))
                await self._round(stage, order.pop())
                rounds += 1
                if rounds % ROUNDS_BETWEEN_CHECKS == 0:
                    await self._check(stage, accounts, self._checked)
                    self._start(clients)
            await self._check(stage, [*accounts, stage.probes], {})
            self._add(stage)
        finally:
            for writers in self.writers:
                writers.abandon()

    async def _round(self, stage: Stage, name: str) -> None:
        began, before = time.monotonic(), self.operations
        print(f"{name:16} ", end="", flush=True)
        await FAULTS[name](stage)
        if self._chance.random() < 0.5:  # Else the next one meets nodes that have not caught up.
            await stage.settle()
        await stage.goes_on()
        self._faults[name] = self._faults.get(name, 0) + 1
        seconds, done = time.monotonic() - began, self.operations - before
        print(f"{seconds:6.1f} s {done:9,} operations", flush=True)

    async def _check(self, stage: Stage, accounts: list[Account], start: dict[int, int]) -> None:
        for writers in self.writers:
            await writers.stop()
        for _ in range(len(stage.nodes)):
            await stage.settle()
            try:
                await check(stage.client, stage.cluster, accounts, stage.nodes, start)
                break
            except latewood.UnavailableError:
                if not stage.suspects:
                    raise
                await asyncio.sleep(1.0)  # A node that met its flipped bit stops; the next look finds it mended.
        else:
            raise WrongError("nodes cannot be compared: one after the other stops")
        self._checked = {account.partition: account.count for account in accounts}
        print(f"checked: {self.operations:,} operations, {self._rate():,.0f}/s", flush=True)

    def _start(self, clients: list[AsyncClient]) -> None:
        self._lives += 1
        for writers, client in zip(self.writers, clients, strict=True):
            writers.start(client, f"{self._lives}-")

    def _is_over(self, rounds: int) -> bool:
        minutes = (time.monotonic() - self._began) / 60
        if rounds < self._arguments.rounds:
            return False
        written: int = self._before + self.operations
        return bool(written >= self._arguments.operations or minutes >= self._arguments.minutes)

    def _rate(self) -> float:
        return self.operations / (time.monotonic() - self._began)

    def _add(self, stage: Stage) -> None:
        """Add what was checked to the end."""
        totals = self._totals
        totals["seeds"].append(self.seed)
        totals["operations"] += self.operations
        totals["calls"] += sum(writers.calls for writers in self.writers)
        totals["resolved"] += sum(writers.doubts for writers in self.writers)
        totals["seconds"] += round(time.monotonic() - self._began, 1)
        totals["elections"] += [round(one, 2) for one in stage.elections]
        for table, counts in (("counts", stage.counts), ("faults", self._faults)):
            for what, count in counts.items():
                totals[table][what] = totals[table].get(what, 0) + count


def play(campaign: Campaign, root: Path) -> None:
    """Run one piece.

    Raises:
        WrongError: a promise was broken.
    """

    async def story(cluster: ClusterProcesses, network: Network, disk: Path | None) -> None:
        async with (
            await latewood.connect_async(cluster.seeds, timeout_ms=TIMEOUT_MS) as client,
            await latewood.connect_async(cluster.seeds, timeout_ms=HASTY_MS) as hasty,
        ):
            stage = Stage(root, cluster, network, client, random.Random(campaign.seed))
            stage.disk, stage.disk_node = disk, DISK_NODE
            await campaign.run(stage, [client, hasty])

    with ExitStack() as opened:
        network = opened.enter_context(Network())
        cluster = ClusterProcesses(root, extra=SMALL, network=network)
        disk = opened.enter_context(small_disk(root / "disk"))
        if disk is not None:
            shutil.move(root / f"data-{DISK_NODE}", disk / str(DISK_NODE))
            (root / f"data-{DISK_NODE}").symlink_to(disk / str(DISK_NODE))
        opened.enter_context(cluster)
        asyncio.run(story(cluster, network, disk))


def main(argv: list[str]) -> int:
    """Run a piece of a campaign, add it to the totals, and print them."""
    arguments = _parser().parse_args(argv)
    totals = _load(arguments.totals)
    root = Path(tempfile.mkdtemp(prefix="latewood-campaign-"))
    code = 0
    campaign = Campaign(arguments, totals)
    try:
        if totals["operations"] < arguments.operations:
            play(campaign, root)
    except Exception as error:  # noqa: BLE001 - the top: whatever it is, nobody can say that all is well
        traceback.print_exc()
        totals["failures"].append(f"seed {campaign.seed}: {type(error).__name__}: {error}; files: {root}")
        code = 1
    if not code:
        shutil.rmtree(root)
    if arguments.totals is not None:
        arguments.totals.write_text(json.dumps(totals, indent=1) + "\n")
    _show(totals)
    return code


def _load(path: Path | None) -> Totals:
    if path is not None and path.exists():
        found: Totals = json.loads(path.read_text())
        return found
    lists: Totals = {"seeds": [], "elections": [], "failures": []}
    return lists | {"operations": 0, "calls": 0, "resolved": 0, "seconds": 0.0, "faults": {}, "counts": {}}


def _show(totals: Totals) -> None:
    seconds = totals["seconds"] or 1.0
    elections = sorted(totals["elections"])
    print(
        f"operations       {totals['operations']:,} acknowledged in {totals['calls']:,} calls, and found on all nodes"
    )
    print(f"speed            {totals['operations'] / seconds:,.0f}/s over {seconds:,.0f} s, faults and checks included")
    print(f"faults           {sum(totals['faults'].values())}: {totals['faults']}")
    print(f"besides          {totals['resolved']} answers in doubt resolved, {totals['counts']}")
    if elections:
        within = sum(one <= 5 for one in elections)
        print(
            f"new leaders      {len(elections)}: a write acknowledged after {elections[len(elections) // 2]} election "
            f"timeouts in the middle, {elections[-1]} at worst; {within} within 5"
        )
    print(f"broken promises  {len(totals['failures'])}")
    for failure in totals["failures"]:
        print(f"  {failure}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.replica.campaign", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--operations", type=int, default=1_000_000, help="until the totals have come to this")
    parser.add_argument("--minutes", type=float, default=60.0, help="at most so long, this time")
    parser.add_argument("--rounds", type=int, default=0, help="at least so many faults, however much is written")
    parser.add_argument("--seed", type=int, default=1, help="of the first piece; each later one has the next")
    parser.add_argument("--writers", type=int, default=16, help="to each partition, of those that write one at a time")
    parser.add_argument("--batch", type=int, default=50, help="records in a call, of the writers that write in batches")
    parser.add_argument("--totals", type=Path, help="a file that is read, added to and written")
    parser.add_argument(
        "--faults", type=lambda text: text.split(","), default=list(FAULTS), help=f"only these, of {','.join(FAULTS)}"
    )
    return parser


if __name__ == "__main__":
    try:
        check_native()
    except NotFoundError as missing:
        sys.exit(str(missing))
    sys.exit(main(sys.argv[1:]))
