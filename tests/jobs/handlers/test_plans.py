"""What is decided about chunks, as the scenario files say; and that compactions come to an end."""

from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.jobs.handlers import compaction, expiry
from latewood.jobs.handlers.compaction import Piece
from latewood.jobs.handlers.expiry import Held, Policy
from tests.scenarios.script import Scenario, scenarios

HERE: Final = Path(__file__).parent
KIB: Final = 1024
TARGET: Final = 100


def pieces(sizes: list[str]) -> list[Piece]:
    found, at = list[Piece](), 0
    for size in sizes:
        at += 1 if size == "|" else 10
        if size != "|":
            found.append(Piece(len(found), at, at + 9, int(size) * KIB))
    return found


@pytest.mark.parametrize("scenario", scenarios(HERE / "compaction.txt"), ids=str)
def test_chunks_are_joined_as_the_scenario_says(scenario: Scenario) -> None:
    words = {command: fields for command, *fields in scenario.input}
    target = int(words.get("target", [str(TARGET)])[0]) * KIB
    groups = compaction.plan(pieces(words["chunks"]), target, eager="eager" in words)
    found = " ".join("+".join(str(piece.chunk_id) for piece in group) for group in groups)
    assert [found or "-"] == scenario.expected


@pytest.mark.parametrize("scenario", scenarios(HERE / "expiry.txt"), ids=str)
def test_chunks_expire_as_the_scenario_says(scenario: Scenario) -> None:
    chunks, names, floors = list[Held](), list[str](), dict[int, int | None]()
    policy, now_ms = Policy(), 0
    for command, *fields in scenario.input:
        chosen = {name: int(value) for name, _, value in (field.partition("=") for field in fields) if value}
        if command == "chunk":
            chunks.append(Held(len(names), chosen["shard"], chosen["to"], chosen["size"], chosen["at"] * 1000))
            names.append(fields[0])
        elif command == "policy":
            age = chosen.get("age")
            policy = Policy(chosen.get("bytes"), None if age is None else age * 1000)
        elif command == "reader":
            floors[chosen["shard"]] = chosen["at"]
        else:
            now_ms = int(fields[0]) * 1000
    gone = [names[chunk_id] for chunk_id in expiry.plan(chunks, policy, floors, now_ms)]
    assert [" ".join(gone) or "-"] == scenario.expected


@given(st.lists(st.integers(1, 120 * KIB), max_size=60), st.booleans())
def test_joining_keeps_every_chunk_once_and_comes_to_an_end(sizes: list[int], eager: bool) -> None:  # noqa: FBT001
    chunks = [Piece(index, index, index, size) for index, size in enumerate(sizes)]
    for _ in range(len(sizes) + 1):
        groups = compaction.plan(chunks, TARGET * KIB, eager=eager)
        if not groups:
            break
        joined = {piece.chunk_id for group in groups for piece in group}
        assert len(joined) == sum(map(len, groups))
        for group in groups:
            assert sum(piece.size_bytes for piece in group) <= TARGET * KIB
            first, last = chunks.index(group[0]), chunks.index(group[-1])
            assert chunks[first : last + 1] == group
            whole = Piece(
                group[0].chunk_id, group[0].sequence_min, group[-1].sequence_max, sum(p.size_bytes for p in group)
            )
            chunks[first : last + 1] = [whole]
    assert compaction.plan(chunks, TARGET * KIB, eager=eager) == []
    assert sum(piece.size_bytes for piece in chunks) == sum(sizes)


def test_small_chunks_that_come_in_one_by_one_are_rewritten_a_few_times_only() -> None:
    chunks, written = list[Piece](), 0
    for sequence in range(1000):
        chunks.append(Piece(sequence, sequence, sequence, KIB))
        for group in compaction.plan(chunks, 1000 * KIB):
            size = sum(piece.size_bytes for piece in group)
            at = chunks.index(group[0])
            chunks[at : at + len(group)] = [Piece(-1, group[0].sequence_min, group[-1].sequence_max, size)]
            written += size
    assert len(chunks) < 20
    assert written < 20 * 1000 * KIB
