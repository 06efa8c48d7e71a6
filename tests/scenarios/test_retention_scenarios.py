"""Runs retention.txt against the rule itself."""

from pathlib import Path
from typing import Any

import pytest

from latewood import RetentionPolicy
from latewood.queue.retention import Plan, ReaderState, SealedSegment, plan
from tests.scenarios.script import Scenario, milliseconds, scenarios

NOW_MS = 1_000 * 3_600_000
MS = 1_000_000


def ago_ns(words: dict[str, str], key: str) -> int:
    return (NOW_MS - milliseconds(words.get(key, "0s"))) * MS


def run(lines: list[list[str]]) -> Plan:
    segments: list[SealedSegment] = []
    readers: list[ReaderState] = []
    policy: dict[str, Any] = {}
    for kind, name, *rest in lines:
        words = dict(zip(rest[::2], rest[1::2], strict=False))
        match kind:
            case "segment":
                sealed_at_ns = ago_ns(words, "sealed")
                segments.append(SealedSegment(int(name), int(words["ends"]), int(words["size"]), sealed_at_ns))
            case "reader":
                readers.append(ReaderState(name, int(words["at"]), ago_ns(words, "committed")))
            case "policy" if name == "max_bytes":
                policy[name] = int(rest[0])
            case "policy":
                policy[f"{name}_ms"] = milliseconds(rest[0])
            case _:
                raise AssertionError(f"a scenario does not speak of {kind!r}")
    sealed_bytes = sum(segment.size for segment in segments)
    return plan(segments, sealed_bytes, readers, RetentionPolicy(**policy), NOW_MS * MS)


def told(result: Plan) -> list[str]:
    retired = [f"retire {' '.join(map(str, result.retire)) or 'nothing'}"]
    return retired + ([f"held by {' '.join(result.held_by)}"] if result.held_by else [])


@pytest.mark.parametrize("scenario", scenarios(Path(__file__).with_name("retention.txt")), ids=str)
def test_retention_decides_as_the_scenario_says(scenario: Scenario) -> None:
    assert told(run(scenario.input)) == scenario.expected
