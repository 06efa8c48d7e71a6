"""Records that another program appends to a partition of a stopped node: no node serves them, and a repair mends it."""

import json
from pathlib import Path
from typing import Final

import pytest

from tests.replica.checking import leader_among
from tests.replica.test_cluster_damage import Scene, mend, run
from tests.replica.test_stray import append_to

pytestmark = [pytest.mark.slow, pytest.mark.needs("native")]

STRAY: Final = [b"of another program"] * 3


def partition_of(scene: Scene, node: int) -> Path:
    (path,) = scene.data(node).glob("partitions/7-*")
    return path


async def refuses(scene: Scene, node: int, sequence: int) -> str:
    """Start a node, which stops at once; return what it said."""
    with pytest.raises(AssertionError, match=f"record {sequence} of partition 7 came with no entry"):
        scene.cluster.nodes[node].start()
    return await scene.stops(node)


def test_a_stray_append_while_a_node_is_down_is_never_served_and_mended_as_the_node_says(tmp_path: Path) -> None:
    """The parent logs have forgotten the first records.  At last there is no node to ask for them, and none is lost."""

    async def story(scene: Scene) -> None:
        nodes, node = scene.cluster.nodes, 1
        assert nodes[node].end() == 0
        count = append_to(partition_of(scene, node), STRAY)
        said = await refuses(scene, node, count)
        assert str(partition_of(scene, node)) in said
        await scene.write()  # The others go on without it.
        mended = mend(said)
        assert mended.returncode == 0, mended
        (aside,) = json.loads(mended.stdout)["set_aside"]
        assert (aside["what"], aside["kept"]) == ("partition", count)
        nodes[node].start()
        await scene.agree()
        await leader_among(scene.client, scene.cluster, nodes)
        await scene.client.transfer_leader(node)
        await scene.write()
        await scene.agree()
        for node in scene.cluster.first:
            assert nodes[node].end() == 0
        for node in scene.cluster.first:
            assert mend(await refuses(scene, node, append_to(partition_of(scene, node), STRAY))).returncode == 0
        for node in scene.cluster.first:
            nodes[node].start()
        await scene.agree()
        await scene.write()
        await scene.agree()

    run(tmp_path, story)
