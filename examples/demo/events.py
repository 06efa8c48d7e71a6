"""What happens in the demo's shop: events that anybody can compute again, and what they must add up to.  Pure."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

PAGES: Final = ("/", "/cart", "/help", "/pay", "/shop")


class Event(NamedTuple):
    """One event, given by the run of the generator and its number in it."""

    run: int
    number: int

    @property
    def page(self) -> str:
        """Where it happened."""
        return PAGES[self.number * 7919 % 10_007 % len(PAGES)]

    @property
    def cents(self) -> int:
        """What was spent."""
        return (self.run * 31 + self.number * 17) % 1000

    @property
    def key(self) -> bytes:
        """Who it was; picks the shard."""
        return b"user-%d" % (self.number % 101)

    def payload(self) -> bytes:
        """Return what is appended."""
        visit = hashlib.sha256(b"%d/%d" % self).hexdigest()[:40]
        fields = {"run": self.run, "number": self.number, "page": self.page, "cents": self.cents, "visit": visit}
        return json.dumps(fields).encode()


class RunTally(NamedTuple):
    """What the one table has of one run of the generator."""

    events: int
    distinct: int
    found: int
    """Events that were acknowledged."""
    cents: int
    """Of those that were acknowledged."""


class PageTally(NamedTuple):
    """What happened on one page."""

    events: int
    cents: int


class Tally(NamedTuple):
    """Everything that was found, by run and by page."""

    runs: Mapping[int, RunTally]
    pages: Mapping[str, PageTally]

    @property
    def events(self) -> int:
        """All events."""
        return sum(run.events for run in self.runs.values())


def tally(payloads: Iterable[bytes], acknowledged: Mapping[int, int]) -> Tally:
    """Count without Spark."""
    numbers: dict[int, list[int]] = {}
    pages: dict[str, PageTally] = {}
    cents: dict[tuple[int, int], int] = {}
    for payload in payloads:
        fields = json.loads(payload)
        run, number, page = fields["run"], fields["number"], fields["page"]
        numbers.setdefault(run, []).append(number)
        cents[run, number] = fields["cents"]
        before = pages.get(page, PageTally(0, 0))
        pages[page] = PageTally(before.events + 1, before.cents + fields["cents"])
    runs = {}
    for run, own in numbers.items():
        promised = [number for number in own if number < acknowledged.get(run, 0)]
        spent = sum(cents[run, number] for number in promised)
        runs[run] = RunTally(len(own), len(set(own)), len(promised), spent)
    return Tally(runs, pages)


def problems(found: Tally, acknowledged: Mapping[int, int], killed: Iterable[int]) -> list[str]:
    """Return what is wrong with what was found, given how many events each run was told are durable.

    A run that was killed may have written more than it was told; one that ended by itself may not.
    """
    wrong = []
    for run, count in acknowledged.items():
        one = found.runs.get(run, RunTally(0, 0, 0, 0))
        if one.found != count:
            wrong.append(f"run {run}: {count:,} events were acknowledged, and {one.found:,} of them are there")
        if one.distinct != one.events:
            wrong.append(f"run {run}: {one.events - one.distinct:,} events are there twice")
        if one.events != count and run not in killed:
            wrong.append(f"run {run}: {one.events:,} events are there, and {count:,} were written")
        cents = sum(Event(run, number).cents for number in range(count))
        if one.cents != cents:
            wrong.append(f"run {run}: {one.cents:,} cents were spent in place of {cents:,}")
    return wrong + [f"run {run} never was" for run in found.runs if run not in acknowledged]
