"""What the commands of the replica's scenario files call."""

from collections.abc import Collection
from typing import Final

from latewood.errors import Overloaded
from latewood.replica.dispatch import Dispatcher, Following, Limits, Signal
from latewood.replica.machine import Run
from latewood.replica.quorum import Custom, Majority, Quorum, Threshold, quorum_index
from latewood.replica.watermarks import PartitionProgress, Watermarks
from tests.scenarios.runner import Command, Line, ScenarioError

_MS: Final = 1_000_000


# -- quorum -----------------------------------------------------------------------------------------------


def say_reached(lines: list[Line]) -> list[str]:
    """`reached`: up to where enough nodes have a partition."""
    head, *rows = lines
    quorum, members = quorum_of(head), head.optional("members")
    head.check_all_used()
    return [f"{row.text}: {reached(quorum, row, members)}" for row in rows]


def reached(quorum: Quorum, row: Line, members: int | None) -> int:
    acknowledged = {node: row.number(str(node)) for node in range(1, 10) if row.optional(str(node)) is not None}
    return quorum_index(quorum, acknowledged, range(1, members + 1) if members else acknowledged.keys())


def quorum_of(line: Line) -> Quorum:
    threshold = line.optional("threshold")
    if threshold is not None:
        return Threshold(threshold)
    return Custom(first_and_another) if "custom" in line.words else Majority()


def first_and_another(acknowledged: Collection[int], members: Collection[int]) -> bool:
    return 1 in acknowledged and len(acknowledged) > 1 and len(members) > 1


# -- admission --------------------------------------------------------------------------------------------


class Desk:
    """A dispatcher, and the time."""

    def __init__(self, head: Line) -> None:
        age, bound = head.optional("age"), head.optional("signal")
        limits = Limits(
            ops_max=head.optional("ops"),
            bytes_max=head.optional("bytes"),
            age_max_ms=None if age is None else age // _MS,
            lag_max=head.optional("lag"),
        )
        whole = Limits(ops_max=head.optional("whole_ops"), bytes_max=None, age_max_ms=None)
        head.check_all_used()
        self.values: dict[int, int] = {}
        self.dispatcher = Dispatcher(
            limits, whole, lambda key: [] if bound is None else [Signal("memory", self.values.get(key, 0), bound)]
        )
        self.now_ns = 0

    def do(self, line: Line) -> list[str]:
        verb, key = line.words[0], int(line.words[1]) if len(line.words) > 1 else 0
        found = self.admit(key, line) if verb == "admit" else self.note(verb, key, line)
        line.check_all_used()
        return found

    def admit(self, key: int, line: Line) -> list[str]:
        ops, size = line.number("ops"), line.number("bytes", 1)
        try:
            taken = self.dispatcher.admit(key, ops, ops * size, self.now_ns)
        except Overloaded as error:
            return [str(error).removesuffix("; back off and try again")]
        return [f"{taken[0]} to {taken[-1]}" if len(taken) > 1 else str(taken[0])]

    def note(self, verb: str, key: int, line: Line) -> list[str]:
        dispatcher = self.dispatcher
        match verb:
            case "commit":
                to = line.number("to")
                dispatcher.record_committed(key, to, to, 1, self.now_ns)
            case "apply":
                dispatcher.record_applied(key, line.number("to"))
            case "withdraw":
                dispatcher.withdraw(key, line.number("from"))
            case "signal":
                self.values[key] = line.number("value")
            case "freeze" | "thaw":
                dispatcher.freeze(key, frozen=verb == "freeze")
            case "wait":
                self.now_ns += line.number("for")
            case "lead":
                numbers = {one: line.optional(str(one)) for one in range(10)}
                dispatcher.lead(Following({one: index for one, index in numbers.items() if index}))
            case _:
                raise ScenarioError(f"nobody knows: {line.text}")
        return []


def say_limits(lines: list[Line]) -> list[str]:
    """`limits`: what is admitted under them."""
    desk = Desk(lines[0])
    return [answer for line in lines[1:] for answer in desk.do(line)]


# -- watermarks -------------------------------------------------------------------------------------------


class Gauge:
    """Watermarks, and the oldest entry that not enough nodes have."""

    def __init__(self, base: int) -> None:
        self.marks, self.pending = Watermarks(base), None if base >= 0 else 0

    def do(self, line: Line) -> list[str]:
        verb, at = line.words[0], int(line.words[1]) if len(line.words) > 1 else 0
        marks = self.marks
        match verb:
            case "truncate":
                return [f"truncate to {marks.truncatable_to(self.pending)}"]
            case "floor":
                return [f"floor {marks.applied_floor()}"]
            case "through":
                return [f"through {marks.applied_through(at)}"]
            case "pending":
                self.pending = at
            case "snapshot":
                marks.record_parent_snapshot(at)
            case _:
                self.note(verb, at, line)
        line.check_all_used()
        return []

    def note(self, verb: str, at: int, line: Line) -> None:
        marks = self.marks
        match verb:
            case "durable":
                marks.record_parent_durable(at)
            case "route":
                index = line.number("index")
                marks.record_routed(line.number("partition"), [Run(index, index, at)])
                marks.record_passed(at)
            case "pass":
                marks.record_passed(at)
            case "flush":
                marks.record_flushed(at, line.number("to"))
            case "apply":
                marks.record_applied(at, line.number("to"))
            case "open":
                highest, applied, top = line.number("highest"), line.number("applied"), line.number("global")
                marks.open(
                    at,
                    PartitionProgress(
                        highest_index=highest,
                        highest_global=top,
                        durable_index=highest,
                        durable_global=top,
                        flushed_index=highest,
                        applied_index=applied,
                        applied_global=top,
                    ),
                )
            case _:
                raise ScenarioError(f"nobody knows: {line.text}")


def say_watermarks(lines: list[Line]) -> list[str]:
    """`watermarks`: what may be forgotten after all that."""
    gauge = Gauge(lines[0].number("base", 0))
    return [answer for line in lines[1:] for answer in gauge.do(line)]


COMMANDS: Final[dict[str, Command]] = {
    "reached": say_reached,
    "limits": say_limits,
    "watermarks": say_watermarks,
}
