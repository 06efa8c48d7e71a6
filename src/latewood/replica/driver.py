"""The order in which an engine's wishes are carried out: send, write, sync, send what was held back, hand on.

`Driver` is the part that every shell shares, the one with threads and the simulated one: it sends and hands on, and
gives out `Write`s, which `perform` carries out on the thread that owns the store.  It waits for nothing.
`EngineLoop` is the shell with threads.

Invariant: held-back messages leave in the order of their writes, and each after its own and all earlier writes are
durable, even those of a ready that has nothing to write.   Order of writes: docs/adr/0021-raft-engine.md
"""

import logging
from asyncio import get_running_loop
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from latewood.errors import ClosedError, UsageError
from latewood.replica.bundle import bundles
from latewood.replica.engine import (
    NO_NODE,
    ConfState,
    Engine,
    Entry,
    EntryKind,
    Fetch,
    HardState,
    LogStore,
    Message,
    ReadState,
    Recovered,
    Role,
    Snapshot,
)
from latewood.replica.pace import SMALL_BYTES, Pace
from latewood.replica.storage_thread import StorageThread

_Token = TypeVar("_Token")
_NEWS_S: Final = 0.01
"""So long after a commit the others are told of it; entries that follow tell them earlier, and ticks those that lag."""
_logger = logging.getLogger(__name__)


class Write(NamedTuple):
    """What one ready wants durable, and the messages that wait for it."""

    number: int
    snapshot: Snapshot | None
    entries: list[Entry]
    hard_state: HardState | None
    confs: list[tuple[int, ConfState]]
    must_sync: bool
    messages: list[Message]

    @property
    def is_lazy(self) -> bool:
        """Whether it only tells of a commit, which may be forgotten: whoever leads will tell it again."""
        return not (self.entries or self.confs or self.snapshot or self.must_sync or self.messages)

    @property
    def is_empty(self) -> bool:
        """Whether the store has nothing to do for it."""
        return not (self.entries or self.confs or self.hard_state or self.snapshot)


def perform(store: LogStore, writes: Iterable[Write]) -> None:
    """Carry writes out, in order, with one sync for all of them.  On the store's thread."""
    must_sync = False
    for write in writes:
        if write.snapshot:
            store.install(write.snapshot)
        if write.entries:
            store.append(write.entries, write.hard_state)
        elif write.hard_state:
            store.set_hard_state(write.hard_state)
        for index, conf in write.confs:
            store.set_conf(index, conf)
        must_sync = must_sync or write.must_sync
    if must_sync:
        store.sync()


class Driver:
    """Drives one engine.  Owned by the engine's thread.

    `send` takes messages, `hand_on` committed entries of ours, `on_reads` the answers to `read_index`.  None of them
    may call the driver back.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        recovered: Recovered,
        send: Callable[[Sequence[Message]], None],
        hand_on: Callable[[Sequence[Entry]], None],
        on_reads: Callable[[Sequence[ReadState]], None],
    ) -> None:
        self.engine = engine
        self.role, self.leader, self.term = int(Role.FOLLOWER), NO_NODE, recovered.hard_state.term
        self.conf, self.conf_index = recovered.conf, recovered.conf_index
        self._send, self._hand_on, self._on_reads = send, hand_on, on_reads
        self._writing: deque[Write] = deque()
        self._committed: list[list[Entry]] = []
        """To be handed on."""
        self._unwritten: HardState | None = None
        """How far is committed: written with what comes next, for a write of its own would hold that up."""

    def take(self) -> list[Write]:
        """Do all that can be done at once but for `hand_on`, and return what is to be written, in this order."""
        writes: list[Write] = []
        while self.engine.has_ready():
            write = self._take()
            if (write.is_lazy or write.is_empty) and not self._writing:
                self._unwritten = write.hard_state or self._unwritten
                self._finish(write)
            else:
                if self._unwritten and not write.hard_state and not write.snapshot:
                    write = write._replace(hard_state=self._unwritten)
                self._unwritten = None
                self._writing.append(write)
                writes.append(write)
        return writes

    def hand_on(self) -> bool:
        """Hand committed entries on, which may take a while: best while the disk writes.  Say whether there were any.

        There may be more to take after that.
        """
        committed, self._committed = self._committed, []
        for entries in committed:
            self._hand_on(entries)
            self.engine.on_applied(entries[-1].index)
        return bool(committed)

    def written(self, count: int) -> None:
        """Say that the next `count` writes are durable; call `take` again after this."""
        for _ in range(count):
            self._finish(self._writing.popleft())

    def fetches(self) -> list[Fetch]:
        """Take the requests for old entries: read them from the store, then call `engine.on_fetched`."""
        return self.engine.fetches()

    def _take(self) -> Write:
        ready = self.engine.ready()
        self.role, self.leader = ready.role, ready.leader
        if ready.hard_state:
            self.term = ready.hard_state.term
        if ready.messages:
            self._send(ready.messages)
        if ready.read_states:
            self._on_reads(ready.read_states)
        if ready.snapshot:
            self.hand_on()  # What lies before it comes before it.
            self.conf_index, self.conf = ready.snapshot.index, ready.snapshot.conf
        confs = self._commit(ready.committed) if ready.committed else []
        return Write(
            ready.number,
            ready.snapshot,
            ready.entries,
            ready.hard_state,
            confs,
            ready.must_sync,
            ready.persisted_messages,
        )

    def _finish(self, write: Write) -> None:
        self.engine.on_persisted(write.number)
        if write.snapshot:
            self.engine.on_applied(write.snapshot.index)
        if write.messages:
            self._send(write.messages)

    def _commit(self, committed: list[Entry]) -> list[tuple[int, ConfState]]:
        # A change that took effect before a restart, and was stored, is committed again: it is not applied again.
        changes = [entry for entry in committed if entry.kind != EntryKind.NORMAL and entry.index > self.conf_index]
        confs = [(entry.index, self.engine.apply_change(entry)) for entry in changes]
        if confs:
            self.conf_index, self.conf = confs[-1]
        self._committed.append(committed)
        return confs


class Proposals(Generic[_Token]):
    """Who waits for which entry.  Pure.

    An entry is known by index *and* term: another leader may have put another entry at the same index.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, int, Sequence[_Token]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, index: int, term: int, tokens: Iterable[Sequence[_Token]]) -> list[_Token]:
        """Remember who waits for entries from `index` on, proposed in `term`; return whose entries these replace."""
        lost: list[Sequence[_Token]] = []
        while self._waiting and self._waiting[-1][0] >= index:
            lost.append(self._waiting.pop()[2])
        self._waiting.extend((index + place, term, own) for place, own in enumerate(tokens))
        return [token for own in reversed(lost) for token in own]

    def give_up(self) -> list[_Token]:
        """Return whoever waits, and forget them: nobody will know any more what became of their entries."""
        lost = [token for _, _, own in self._waiting for token in own]
        self._waiting.clear()
        return lost

    def settle(self, committed: Sequence[Entry]) -> tuple[list[tuple[_Token, int]], list[_Token]]:
        """Return who waited for these entries, with the index, and who waited for others at their indices."""
        done: list[tuple[_Token, int]] = []
        lost: list[_Token] = []
        for entry in committed:
            while self._waiting and self._waiting[0][0] <= entry.index:
                index, term, own = self._waiting.popleft()
                if (index, term) == (entry.index, entry.term):
                    done += [(token, index) for token in own]
                else:
                    lost += own
        return done, lost


class Host(Protocol[_Token]):
    """What surrounds an engine that runs by itself.  Called on the event loop; none of these may call back."""

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages, or lose them: never wait."""
        ...

    def hand_on(self, entries: Sequence[Entry]) -> None:
        """Take committed entries, in order."""
        ...

    def on_reads(self, reads: Sequence[ReadState]) -> None:
        """Take the answers to `read_index`."""
        ...

    def on_settled(self, done: list[tuple[_Token, int]], lost: list[_Token]) -> None:
        """Take note of entries that are committed, and of those of which nobody knows what became."""
        ...

    def on_refused(self, tokens: list[_Token]) -> None:
        """Take note of entries that were not taken: we do not lead, or too much waits."""
        ...

    def on_failure(self, error: BaseException) -> None:
        """Take note that the node has stopped, and why."""
        ...


class EngineLoop(Generic[_Token]):
    """An engine that runs by itself: the event loop's thread owns it, and one more thread owns the store.

    Small writes to a quick disk are the loop's own (`pace`), while that thread has nothing to do.

    What is proposed or received during one turn of the event loop goes to the engine as one batch; what is to be
    written while the disk is busy is written with one sync.
    """

    def __init__(self, engine: Engine, store: LogStore, recovered: Recovered, host: Host[_Token]) -> None:
        self.engine, self.driver = (
            engine,
            Driver(engine, recovered=recovered, send=host.send, hand_on=self._hand_on, on_reads=host.on_reads),
        )
        self.proposals: Proposals[_Token] = Proposals()
        self._store, self._host = store, host
        self._loop = get_running_loop()
        self._storage = StorageThread(self._loop, "latewood-parent-log")
        self._reading = StorageThread(self._loop, "latewood-parent-read")
        self._pace = Pace()
        self._will_tell = False
        self._queue: list[Write] = []
        self._actions: list[Callable[[], None]] = []
        self._is_writing = self._is_woken = False
        self._data: list[bytes] = []
        self._counts: list[int] = []
        self._tokens: list[_Token] = []
        self._received: dict[int, list[bytes]] = {}
        self.failure: BaseException | None = None

    def tick(self) -> None:
        """Let one unit of time pass."""
        self._do(self.engine.tick)

    def step(self, sender: int, messages: Sequence[bytes]) -> None:
        """Take in messages of one node, with the next turn."""
        self._received.setdefault(sender, []).extend(messages)
        self.wake()

    def propose(self, data: bytes, token: _Token, commands: int = 1) -> None:
        """Propose one or more commands, for one entry, with the next turn; the host hears of their end by `token`."""
        self._data.append(data)
        self._counts.append(commands)
        self._tokens.append(token)
        self.wake()

    def act(self, action: Callable[[], None]) -> None:
        """Do something with the engine, and have a turn soon."""
        self._do(action)

    def fail(self, error: BaseException) -> None:
        """Stop, because of what happened beside the engine."""
        self._do(lambda: _raise(error))

    def on_store(self, action: Callable[[], None]) -> None:
        """Have something done on the store's thread, such as a compaction, when nothing is being written."""
        self._actions.append(action)
        self.wake()

    def wake(self) -> None:
        """Have a turn soon."""
        if not self._is_woken and self.failure is None:
            self._is_woken = True
            self._loop.call_soon(self._turn)

    def close(self) -> None:
        """Stop, and wait for what is being written.  The store stays open."""
        self._stop(ClosedError("the node is closed"))
        self._storage.close()
        self._reading.close()

    def _do(self, action: Callable[[], None]) -> None:
        if self.failure is not None:
            return
        if self._succeeds(action):
            self.wake()

    def _succeeds(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - whatever it is, this engine is of no use any more
            self._stop(error)
            self._host.on_failure(error)
            return False
        return True

    def _turn(self) -> None:
        self._is_woken = False  # Before the turn: what comes in while it is taken has another one.
        if self.failure is None:
            self._succeeds(self._take_turn)

    def _take_turn(self) -> None:
        self._take_in()
        self._queue += self.driver.take()
        for fetch in self.driver.fetches():
            self._fetch(fetch)
        has_handed_on = False
        if not self._is_writing and (self._queue or self._actions):
            writes, self._queue = self._queue, []
            size = sum([len(entry.data) for write in writes for entry in write.entries])
            if self._is_waited_for(writes, size):
                # The disk keeps us: who waits for an answer alone, as few do, does not wait for that too.
                has_handed_on = self.driver.role == Role.LEADER and self.driver.hand_on()
                self._write_here(writes, size)
            else:
                self._write(writes, size)
        if (self.driver.hand_on() or has_handed_on) and self.engine.has_ready():
            self.wake()

    def _take_in(self) -> None:
        received, self._received = self._received, {}
        for sender, messages in received.items():
            try:
                self.engine.step(sender, messages)
            except UsageError as error:  # Its sender is at fault, not this engine; Raft repeats what counts.
                _logger.warning("messages of node %d are dropped: %s", sender, error)
        if self._data:
            data, counts, tokens = self._data, self._counts, self._tokens
            self._data, self._counts, self._tokens = [], [], []
            shared = bundles(data, counts)
            if index := self.engine.propose([b"".join(data[one.start : one.stop]) for one in shared]):
                waiting = [tokens[one.start : one.stop] for one in shared]
                if lost := self.proposals.add(index, self.driver.term, waiting):
                    self._host.on_settled([], lost)
            else:
                self._host.on_refused(tokens)

    def _hand_on(self, entries: Sequence[Entry]) -> None:
        if self.driver.role == Role.LEADER and not self._will_tell:
            self._will_tell = True
            self._loop.call_later(_NEWS_S, self._tell_commit)
        done, lost = self.proposals.settle(entries)
        if done or lost:
            self._host.on_settled(done, lost)  # First: who waits for it need not wait for the partitions, too.
        self._host.hand_on(entries)

    def _tell_commit(self) -> None:
        self._will_tell = False
        self._do(self.engine.tell_commit)

    def _is_waited_for(self, writes: Sequence[Write], size: int) -> bool:
        """Say whether the event loop writes itself: what is small, to a disk that is quick."""
        is_plain = not self._actions and not any(write.snapshot for write in writes)
        return is_plain and self._pace.is_waited_for(size)

    def _write_here(self, writes: Sequence[Write], size: int) -> None:
        self._perform(writes, size)
        self.driver.written(len(writes))
        if self.engine.has_ready():
            self.wake()

    def _write(self, writes: Sequence[Write], size: int) -> None:
        """Have the store's thread write, and do what else is to be done there."""
        actions, self._actions = self._actions, []
        self._is_writing = True

        def work() -> None:
            self._perform(writes, size)
            for action in actions:
                action()

        self._then(self._storage, work, lambda _: self._written(len(writes)))

    def _perform(self, writes: Sequence[Write], size: int) -> None:
        """Write and sync, on whatever thread, and know how long that takes; there is one at a time."""
        began = monotonic()
        perform(self._store, writes)
        if size <= SMALL_BYTES:
            self._pace.note(monotonic() - began)

    def _written(self, count: int) -> None:
        self._is_writing = False
        self.driver.written(count)

    def _fetch(self, fetch: Fetch) -> None:
        self._then(
            self._reading,
            lambda: self._store.read(fetch.low, fetch.high, fetch.bytes_max),
            lambda entries: self.engine.on_fetched(fetch.token, entries),
        )

    def _then(self, thread: StorageThread, work: Callable[[], Any], after: Callable[[Any], None]) -> None:
        """Do `work` on a thread, then `after` with what came of it on the event loop."""

        def end(result: Any, failure: BaseException | None) -> None:
            if failure is None:
                self._do(lambda: after(result))
            else:
                self.fail(failure)

        thread.submit(work, end)

    def _stop(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
            lost = [*self.proposals.give_up(), *self._tokens]
            self._tokens = []
            if lost:
                self._host.on_settled([], lost)


def _raise(error: BaseException) -> None:
    raise error
