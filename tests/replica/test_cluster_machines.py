"""User code in real processes: it counts every record once, whatever is killed, and comes back from its snapshots."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest

import latewood
from tests.replica.processes import ClusterProcesses, first_sequence
from tests.replica.test_cluster import PATIENCE_S, until

pytestmark = [pytest.mark.slow, pytest.mark.needs("native")]

PARTITION: Final = 4
SMALL: Final = (
    "[storage]\nsnapshot_bytes = 65536\nparent_segment_bytes = 524288\npartition_segment_bytes = 65536\n"
    "[limits]\npayload_bytes_max = 32768\n"
)
MODULE: Final = '''
import json, os, sys
from pathlib import Path

class Counter:
    """Counts records and adds them up; tells a file, so that the test can look."""

    log_is_state = False

    def __init__(self, partition_id):
        self.file = Path(__file__).with_name(f"told-NODE-{partition_id}.json")
        self.count = self.total = self.restored = 0

    def apply(self, entry):
        assert entry.index == self.count + 1, "in order, and each once"
        self.count += 1
        self.total += int(entry.payload)
        self.tell()

    def snapshot(self):
        yield b"%d " % self.count
        yield b"%d" % self.total

    def restore(self, pieces):
        numbers = b"".join(pieces).split()
        self.count, self.total = map(int, numbers) if numbers else (0, 0)
        self.restored = self.count
        self.tell()

    def tell(self):
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps([self.count, self.total, self.restored, os.getpid()]))
        fresh.replace(self.file)
'''


def told(root: Path, node: int) -> Any:
    path = root / f"told-{node}-{PARTITION}.json"
    return json.loads(path.read_text()) if path.exists() else [0, 0, 0, 0]


def test_a_machine_of_the_users_counts_every_record_once(tmp_path: Path) -> None:
    written: list[int] = []

    async def write(client: Any, count: int = 100) -> None:
        fresh = list(range(len(written), len(written) + count))
        await client.partition(PARTITION).append_many([b"%-500d" % number for number in fresh])
        written.extend(fresh)

    def all_have(cluster: ClusterProcesses) -> bool:
        return all(told(tmp_path, node)[:2] == [len(written), sum(written)] for node in cluster.nodes)

    async def story(cluster: ClusterProcesses) -> None:
        async with await latewood.connect_async(cluster.seeds) as client:
            async with asyncio.timeout(PATIENCE_S):
                while not written or not all(first_sequence(tmp_path, node, PARTITION) for node in cluster.nodes):
                    await write(client)  # Until snapshots were taken, the parent log was cut, and partitions after it.
                    await until(lambda: all_have(cluster))  # Machines that lag hold snapshots up.
            await until(lambda: all_have(cluster))
            leader = (await client.status()).leader
            cluster.nodes[leader].kill()
            await write(client)
            cluster.nodes[leader].start()
            await until(lambda: all_have(cluster))
            assert told(tmp_path, leader)[2] > 0, "it came back from a snapshot"
            for node in cluster.nodes.values():
                node.kill()
            for node in cluster.nodes.values():
                node.start()
            await write(client, 1)
            await until(lambda: all_have(cluster))
            assert all(told(tmp_path, node)[2] > 0 for node in cluster.nodes)

    for node in (1, 2, 3):
        (tmp_path / f"counter_{node}.py").write_text(MODULE.replace("NODE", str(node)))
    with ClusterProcesses(tmp_path, extra=SMALL, top='machine = "counter_NODE:Counter"') as cluster:
        asyncio.run(story(cluster))


def test_a_node_whose_machine_cannot_be_imported_says_so(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path, top='machine = "no_such_module:Counter"')
    with pytest.raises(AssertionError, match="no_such_module cannot be imported"):
        cluster.nodes[1].start()
    assert cluster.nodes[1].end() == 2
