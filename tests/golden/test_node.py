"""Nodes of each version: today's code starts on their files, serves what they hold, and goes on."""

import asyncio
import json
import shutil
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from latewood.format.identity import LogIdentity, Owner
from latewood.fs import PosixFS
from latewood.log.head import identity_of
from latewood.replica.births import Births
from latewood.replica.machine import PartitionEntry
from latewood.testing import FakeClock
from tests.golden.make import EXPECTED, SHOWN_AT_NS
from tests.golden.node import LOGS, MACHINE, NODES, PARTITIONS, READERS, freeze, running, show
from tests.replica.node import Tally

pytestmark = pytest.mark.needs("native")

VERSION_1: Final = Path(__file__).parent / "v1" / "node"
VERSION_2: Final = Path(__file__).parent / "v2" / "node"
VERSIONS: Final = (VERSION_1, VERSION_2)
each_version = pytest.mark.parametrize("version", VERSIONS, ids=["v1", "v2"])
BIRTH: Final = json.loads((VERSION_1 / EXPECTED).read_text())
BIRTHS: Final = Births("golden", 1)
COUNT: Final = 90
"""Records of each partition."""


def payload_of(partition: int, sequence: int) -> bytes:
    return b"record %d of %d" % (sequence, partition)


def copied(version: Path, node: str, target: Path) -> Path:
    return shutil.copytree(version / node, target / node)


def identities(home: Path) -> dict[str, LogIdentity | None]:
    """Return the identities of the parent log and the partitions in a node's folder."""
    paths = [home / "data" / "parent", *(home / "data" / "partitions").iterdir()]
    return {path.name: identity_of(PosixFS(), path) for path in paths}


@each_version
@pytest.mark.parametrize("node", NODES)
def test_a_golden_node_shows_all_that_it_held(version: Path, node: str, tmp_path: Path) -> None:
    assert json.loads((version / EXPECTED).read_text()) == BIRTH
    assert asyncio.run(show(copied(version, node, tmp_path))) == BIRTH


def test_a_node_of_version_1_gets_the_identities_that_its_logs_would_have_today(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = copied(VERSION_1, "stopped", tmp_path)
    assert set(identities(home).values()) == {None}
    asyncio.run(show(home))
    found = identities(home)
    assert len(found) == 1 + len(PARTITIONS) + 1, "the cluster's own partition, too"
    for name, identity in found.items():
        birth = BIRTHS.parent() if name == "parent" else BIRTHS.partition(*map(int, name.split("-")))
        assert identity is not None
        assert (identity.identity, identity.owner, len(identity.lives)) == (birth, Owner.NODE, 1)
    newborn = identities(VERSION_2 / "stopped")
    assert {name: one and one.mark for name, one in found.items()} == {
        name: one and one.mark for name, one in newborn.items()
    }
    assert sum("was upgraded to format 2" in record.message for record in caplog.records) == len(found)


@each_version
@pytest.mark.parametrize("node", NODES)
def test_a_golden_node_goes_on_where_it_ended(version: Path, node: str, tmp_path: Path) -> None:
    home = copied(version, node, tmp_path)
    added = [b"of today %d" % number for number in range(60)]

    async def go_on() -> None:
        async with running(home, FakeClock(SHOWN_AT_NS)) as (_, client):
            for partition in PARTITIONS:
                sequences = await client.partition(partition).append_many(added)
                assert sequences == list(range(COUNT, COUNT + len(added)))
            reader = await client.partition(7).reader("billing")
            record = await reader.next()
            assert record is not None
            assert (record.sequence, record.payload) == (READERS[7]["billing"], payload_of(7, 30))
            await reader.commit()

    asyncio.run(go_on())
    shown = asyncio.run(show(home))
    for partition in PARTITIONS:
        before, after = BIRTH["partitions"][str(partition)], shown["partitions"][str(partition)]
        kept = len(before["records"])
        assert after["records"][:kept] == before["records"]
        assert [bytes.fromhex(record["payload"]) for record in after["records"][kept:]] == added
        assert [record["sequence"] for record in after["records"]] == list(
            range(before["first_sequence"], COUNT + len(added))
        )
        assert after["born"] == before["born"]
    assert [one["sequence"] for one in shown["partitions"]["7"]["readers"]] == [READERS[7]["billing"] + 1]
    assert shown["partitions"]["3"]["readers"][1]["sequence"] == READERS[3]["billing"]
    assert shown["machine"]["count"] == COUNT + len(added)


def test_what_is_expected_of_a_node_is_what_was_appended() -> None:
    for partition in PARTITIONS:
        frozen = BIRTH["partitions"][str(partition)]
        sequences = range(frozen["first_sequence"], COUNT)
        assert [record["sequence"] for record in frozen["records"]] == list(sequences)
        assert [bytes.fromhex(record["payload"]) for record in frozen["records"]] == [
            payload_of(partition, sequence) for sequence in sequences
        ]
        assert {one["name"]: one["sequence"] for one in frozen["readers"]} == READERS.get(partition, {})
    tally = Tally(MACHINE)
    for sequence in range(COUNT):
        tally.apply(PartitionEntry(MACHINE, sequence + 1, 0, 0, payload_of(MACHINE, sequence)))
    assert BIRTH["machine"] == {"count": COUNT, "digest": tally.digest.hex()}


def test_the_frozen_nodes_have_snapshots_and_a_partition_that_needs_one() -> None:
    assert BIRTH["partitions"][str(MACHINE)]["first_sequence"] > 0
    assert all(BIRTH["partitions"][str(partition)]["first_sequence"] == 0 for partition in LOGS)
    for version, node in product(VERSIONS, NODES):
        assert len(list((version / node / "data" / "snapshots").iterdir())) == 2


@each_version
def test_nodes_that_are_frozen_cannot_be_frozen_again(version: Path) -> None:
    with pytest.raises(FileExistsError):
        freeze(version)
