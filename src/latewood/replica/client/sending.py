"""Sending appends: what is ready in one turn of the loop leaves together, and each request is repeated until answered.

Requests to several partitions share a message.  Each has its own answer, and its own end: `verdict` decides, this acts.

Owned by the thread of the client's event loop.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence

from latewood.errors import ClusterUnavailable, LatewoodError, OutcomeUnknown
from latewood.replica.client.batch import Batch, Trouble
from latewood.replica.client.batcher import Batcher
from latewood.replica.client.flight import Flight, Outcome
from latewood.replica.client.link import Link, NotTrusted
from latewood.replica.client.options import ClientOptions
from latewood.replica.client.room import Room
from latewood.replica.client.route import Route
from latewood.replica.client.verdict import CHANGING, Lost, Raise, Retry, Return, give_up, judge, wrong_kind
from latewood.replica.replies import Appended


class Sender:
    """The appends of one client."""

    def __init__(
        self, client_id: bytes, options: ClientOptions, route: Route, room: Room, chance: Callable[[], float]
    ) -> None:
        self._client_id, self._options, self._route, self._chance = client_id, options, route, chance
        self._room = room
        self._loop = asyncio.get_running_loop()
        self.deadline = 0.0
        """Of calls that come in this turn of the loop."""
        self._due: list[Batcher] = []
        self._failed: list[tuple[Batch, Trouble, bool]] = []
        """In this turn of the loop, and whether to try again at once: those that wait do so together."""
        self._parked: list[Batch] = []
        """Ready, while there is no connection."""
        self._connecting: asyncio.Task[None] | None = None
        self._idle: asyncio.Future[None] | None = None

    def want(self, batcher: Batcher) -> None:
        """Send what waits for a partition, with all else that comes in this turn of the loop.

        Raises:
            ClosedError: the client is closed, or the parent process's.
        """
        self._route.check_open()
        if not self._due:
            self.deadline = self._loop.time() + self._options.timeout_ms / 1000
            self._loop.call_soon(self._pump)
        self._due.append(batcher)

    async def drain(self, batchers: Collection[Batcher]) -> None:
        """Return when nothing waits and nothing is on the way."""
        while not all(batcher.is_idle for batcher in batchers):
            self._idle = self._loop.create_future()
            await self._idle

    def _pump(self) -> None:
        due, self._due = self._due, []
        ready = list[Batch]()
        for batcher in due:
            batcher.take(ready)
        if ready:
            self._send(ready)
        self._look_idle()

    def _send(self, batches: Sequence[Batch]) -> None:
        link = self._route.leader_now()
        if link is not None and self._connecting is None:
            self._send_to(link, batches)
            return
        self._parked += batches
        if self._connecting is None:
            self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        """Send what is parked once there is a connection, or give it back."""
        error: LatewoodError | None = None
        try:
            link = await self._route.leader(min(batch.deadline for batch in self._parked))
        except LatewoodError as raised:
            error = raised
        self._connecting = None
        parked, self._parked = self._parked, []
        if error is None:
            self._send_to(link, parked)
        elif isinstance(error, ClusterUnavailable):
            lost = Lost(str(error), was_sent=False, is_final=isinstance(error, NotTrusted))
            for batch in parked:
                self.answered(batch, lost, "")
        else:
            self._fail(parked, error)

    def _send_to(self, link: Link, batches: Sequence[Batch]) -> None:
        for group in together(batches, self._options):
            try:
                Flight(link, group, self._options, self).begin(self._client_id)
            except LatewoodError as error:  # It is larger than a message may be.
                self._fail(group, error)

    def answered(self, batch: Batch, outcome: Outcome, asked: str) -> None:
        """Take the end of an attempt."""
        if type(outcome) is not Appended:
            self._judged(batch, outcome, asked)
        elif batch.succeed(outcome.runs):
            batch.owner.succeeded(batch)
            self._room.give(batch.size)
            self._look_idle()
        else:
            reason = f"{len(outcome.sequences)} sequences came back for {len(batch.payloads)} records"
            self._fail([batch], OutcomeUnknown(reason))

    def carried_out(self, done: Sequence[tuple[Batch, int]]) -> None:
        """Take that requests were carried out, each with sequences from one on."""
        size = 0
        for batch, sequence in done:
            batch.succeed_from(sequence)
            batch.owner.succeeded(batch)
            size += batch.size
        self._room.give(size)
        if self._idle is not None:
            self._look_idle()

    def _judged(self, batch: Batch, outcome: Outcome, asked: str) -> None:
        before = batch.trouble
        verdict = judge(outcome, CHANGING, in_doubt=before is not None and before.in_doubt)
        match verdict:
            case Return():
                self._fail([batch], wrong_kind(verdict.reply, Appended, asked))
            case Raise():
                self._fail([batch], verdict.error)
            case Retry():
                self._route.learn(verdict, asked)
                batch.trouble = Trouble(before.attempts + 1 if before else 1, verdict.in_doubt, verdict.why)
                if not self._failed:
                    self._loop.call_soon(self._repeat)
                self._failed.append((batch, batch.trouble, bool(verdict.address) and before is None))

    def _repeat(self) -> None:
        """Send again what failed in the last turn, after a pause: with the deadline before its end, give up."""
        failed, self._failed = self._failed, []
        chance, now = self._chance(), self._loop.time()
        later = dict[float, list[Batch]]()
        for batch, trouble, at_once in failed:
            pause = 0.0 if at_once else self._options.pause_s(trouble.attempts, chance)
            if now + pause >= batch.deadline:
                waited = f"{self._options.timeout_ms / 1000:.3g} s"
                self._fail([batch], give_up(trouble.last, waited, in_doubt=trouble.in_doubt))
            else:
                later.setdefault(pause, []).append(batch)
        for pause, batches in later.items():
            self._loop.call_later(pause, self._send, batches)

    def _fail(self, batches: Sequence[Batch], error: LatewoodError) -> None:
        for batch in batches:
            batch.owner.failed(batch, error)
        self._look_idle()

    def _look_idle(self) -> None:
        """Have `drain` look again."""
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)


def together(batches: Sequence[Batch], options: ClientOptions) -> Iterator[list[Batch]]:
    """Yield requests that share a message: as many records and bytes as one request may have."""
    group, count, size = list[Batch](), 0, 0
    for batch in batches:
        count, size = count + len(batch.payloads), size + batch.size
        if group and (count > options.batch_records_max or size > options.batch_bytes_max):
            yield group
            group, count, size = [], len(batch.payloads), batch.size
        group.append(batch)
    if group:
        yield group
