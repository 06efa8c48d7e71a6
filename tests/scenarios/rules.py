"""What the commands of the scenario files call: the rules of retention and of rolling, which are pure."""

from collections.abc import Callable, Iterator
from typing import Final

from latewood.errors import RecordTooLarge, UsageError
from latewood.limits import MiB
from latewood.log import roll
from latewood.queue.retention import Plan, ReaderState, RetentionPolicy, SealedSegment, plan
from tests.scenarios.runner import Command, Line, ScenarioError

NOW_NS: Final = 1_000_000 * 3_600_000_000_000
_MS: Final = 1_000_000
_UNBOUNDED: Final = 1 << 62


# -- retention --------------------------------------------------------------------------------------------


class Shelf:
    """The segments, readers and policy of one case."""

    def __init__(self, lines: list[Line]) -> None:
        head, *rest = lines
        self.segments: list[SealedSegment] = []
        self.readers: list[ReaderState] = []
        self.segments_read = 0
        self.policy = policy_of(head)
        for line in rest:
            self._add(line)

    def plan(self) -> Plan:
        sealed_bytes = sum(segment.size for segment in self.segments)
        return plan(self._counted(), sealed_bytes, self.readers, self.policy, NOW_NS)

    def _add(self, line: Line) -> None:
        match line.words:
            case ["segment", segment_id]:
                last, size, age = line.number("last"), line.number("bytes", 100), line.number("sealed", 0)
                self.segments.append(SealedSegment(int(segment_id), last, size, NOW_NS - age))
            case ["reader", name]:
                self.readers.append(ReaderState(name, line.number("at"), NOW_NS - line.number("silent", 0)))
            case _:
                raise ScenarioError(f"neither segment nor reader: {line.text}")
        line.check_all_used()

    def _counted(self) -> Iterator[SealedSegment]:
        for segment in self.segments:
            self.segments_read += 1
            yield segment


def policy_of(line: Line) -> RetentionPolicy:
    """Return the policy in a line's fields."""
    max_age, silent = line.optional("max_age"), line.optional("ignore_silent")
    policy = RetentionPolicy(
        max_bytes=line.optional("max_bytes"),
        max_age_ms=None if max_age is None else max_age // _MS,
        ignore_readers_silent_ms=None if silent is None else silent // _MS,
    )
    line.check_all_used()
    return policy


def say_plan(lines: list[Line]) -> list[str]:
    """`plan`: which segments go, and which readers keep the first that stays."""
    found = Shelf(lines).plan()
    retired = "retire " + (" ".join(map(str, found.retire)) or "nothing")
    return [retired, *([f"held by {' '.join(found.held_by)}"] if found.held_by else [])]


def say_reads(lines: list[Line]) -> list[str]:
    """`reads`: how many segments are looked at for that."""
    shelf = Shelf(lines)
    shelf.plan()
    return [f"{shelf.segments_read} of {len(shelf.segments)}"]


def say_policy(line: Line) -> str:
    """`policy`: whether there can be such a policy."""
    policy_of(line)
    return "allowed"


# -- rolling ----------------------------------------------------------------------------------------------


def say_room(line: Line) -> str:
    """`room`: what an append must wait for."""
    fill = roll.Fill(
        offset=line.number("offset"),
        record_count=line.number("records", 0),
        reserved_end=line.number("reserved"),
        records_end_max=line.number("end"),
        records_max=line.number("records_max", _UNBOUNDED),
    )
    return roll.room_for(line.number("payload"), fill).name.lower()


def say_fits(line: Line) -> str:
    """`fits`: whether any segment could hold a payload."""
    try:
        roll.check_payload(line.number("payload"), line.number("segment"))
    except RecordTooLarge as error:
        return f"too large, at most {size(error.payload_bytes_max)}"
    return "fits"


def say_allowed(line: Line) -> str:
    """`allowed`: how far single appends may go."""
    return size(roll.allowed_end(line.number("offset"), line.number("payload", 0), line.number("reserved")))


def say_reservation(line: Line) -> str:
    """`reservation`: how far a checkpoint lets appends go."""
    return size(roll.reservation_end(line.number("offset"), line.number("payload", 0), line.number("end")))


def say_old(line: Line) -> str:
    """`old`: whether a segment has reached its age."""
    first_append_ns = NOW_NS - line.number("first_append")
    return "old" if roll.is_old(first_append_ns, line.number("age_max") // _MS, NOW_NS) else "young"


def size(count: int) -> str:
    """Return a number of bytes as the files write it."""
    whole = round(count / MiB)
    rest = count - whole * MiB
    return f"{whole}MiB" + (f"{rest:+}" if rest else "") if whole else str(count)


def row_by_row(say: Callable[[Line], str]) -> Command:
    """Return the command that answers for each line after the first, with the first line's fields behind its own."""

    def command(lines: list[Line]) -> list[str]:
        head, *rows = lines
        if not rows:
            return [_answer(say, head)]
        for word in (word for row in rows for word in row.words):
            raise ScenarioError(f"no bare word: {word}")
        return [f"{row.text}: {_answer(say, row.over(head))}" for row in rows]

    return command


def _answer(say: Callable[[Line], str], line: Line) -> str:
    try:
        answer = say(line)
    except UsageError as error:
        return f"{type(error).__name__}: {error}"
    line.check_all_used()
    return answer


COMMANDS: Final[dict[str, Command]] = {
    "plan": say_plan,
    "reads": say_reads,
    "policy": row_by_row(say_policy),
    "room": row_by_row(say_room),
    "fits": row_by_row(say_fits),
    "allowed": row_by_row(say_allowed),
    "reservation": row_by_row(say_reservation),
    "old": row_by_row(say_old),
}
