"""A node that was removed finds it out, from a leader alone, and says it once."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from latewood.errors import UnavailableError
from latewood.replica.config import load_config
from latewood.replica.replies import NodeProgress, Reached, StatusReply
from latewood.replica.standing import Standing, may_be_out, says_out
from latewood.replica.wire import Reply, Request


def status(role: str, term: int, *members: int) -> StatusReply:
    nodes = [NodeProgress(node, "voter", "") for node in members]
    return StatusReply(0, 1, "trial", role, 1, "", term, 9, 9, 9, 9, 1, 9, 0, 0, 0, 0, nodes)


@pytest.mark.parametrize(
    ("members", "leader", "expected"),
    [
        ((1, 2, 3), 1, False),  # All is well.
        ((1, 2, 3), 0, True),  # It was down when it was removed, or there is an election.
        ((1, 2), 1, True),  # It was told, and nothing after.
        ((), 0, False),  # It was never a member, and waits to be one.
    ],
)
def test_a_node_asks_when_it_has_a_reason(members: tuple[int, ...], leader: int, *, expected: bool) -> None:
    assert may_be_out(3, members, leader) == expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (status("leader", 5, 1, 2), True),
        (status("leader", 5, 1, 2, 3), False),
        (status("follower", 5, 1, 2), False),  # It may lag, and not know that we were added.
        (status("leader", 4, 1, 2), False),  # It led before, and does not know that it leads no more.
    ],
)
def test_only_a_leader_of_now_is_believed(reply: StatusReply, *, expected: bool) -> None:
    assert says_out(3, 5, reply) == expected


def played(tmp_path: Path, answers: Mapping[int, Reply], *members: int, ticks: int = 200) -> tuple[bool, list[int]]:
    """Let time pass for node 3, in term 5; return whether it is out, and who was asked."""
    path = tmp_path / "node.toml"
    path.write_text('cluster_id = "trial"\nnode_id = 3\nlisten = "127.0.0.1:7303"\n')
    asked: list[int] = []

    async def ask(node: int, request: Request, timeout_s: float) -> Reply:
        del request, timeout_s
        asked.append(node)
        if node not in answers:
            raise UnavailableError("it is gone")
        return answers[node]

    async def story() -> bool:
        standing = Standing(load_config(path), ask, lambda: [1, 2])
        driver = SimpleNamespace(conf=SimpleNamespace(members=members), leader=0, term=5)
        core: Any = SimpleNamespace(raft=SimpleNamespace(driver=driver))
        for _ in range(ticks):
            standing.tick(core)
            await asyncio.sleep(0)
        was_out = standing.is_out
        driver.conf.members, driver.leader = (1, 2, 3), 1
        standing.tick(core)
        assert not standing.is_out, "it was taken back"
        standing.close()
        return was_out

    return asyncio.run(story()), asked


def test_a_removed_node_says_it_once_and_what_to_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    is_out, asked = played(tmp_path, {2: status("leader", 5, 1, 2)}, 1, 2, 3)
    assert is_out
    assert asked == [1, 2], "who does not answer is passed over, and nobody is asked again"
    (line,) = [one.message for one in caplog.records if one.levelname == "WARNING"]
    assert "node 3 is no longer a member of cluster 'trial'" in line
    assert "stop it" in line
    assert "`latewood cluster add CLUSTER 3 127.0.0.1:7303`" in line


def test_a_member_without_a_leader_goes_on_asking_and_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    is_out, asked = played(tmp_path, {1: status("follower", 5, 1, 2), 2: Reached(0, 7)}, 1, 2, 3)
    assert not is_out
    assert len(asked) > 4
    assert not caplog.records


def test_a_node_that_was_never_taken_in_asks_nobody(tmp_path: Path) -> None:
    assert played(tmp_path, {2: status("leader", 5, 1, 2)}) == (False, [])
