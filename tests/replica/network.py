"""A network between real nodes that can be cut: one proxy on loopback in front of each node, in a thread of its own.

Nodes and clients reach a node only through its proxy, because that is the address it advertises.  A proxy reads the
greeting, so it knows who connects; a way leads from one node to another, whichever of them made the connection.

On a way that is *held* bytes wait, as packets do that TCP repeats, and arrive when it is healed.  One that *refuses*
resets connections.  One that *swallows* takes connections and bytes and passes nothing on, and what was swallowed once
stays dead when it is healed: neither end is ever told.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, Self, TypeVar

from latewood.replica.requests import Hello
from latewood.replica.wire import FrameBuffer

CLIENT: Final = 0
"""Every client, as one end of a way."""
_QUEUED_BYTES_MAX: Final = 4 << 20
"""On one direction of one connection; then its sender is not read any more."""
_ANSWER_S: Final = 30.0

_T = TypeVar("_T")


class Mode(Enum):
    """What a way does with what comes."""

    PASSES = "passes"
    HOLDS = "holds"
    REFUSES = "refuses"
    SWALLOWS = "swallows"


class Way:
    """From one end to another; of all connections between them."""

    def __init__(self) -> None:
        self.mode, self.delay_s = Mode.PASSES, 0.0


class _Pipe:
    """One direction of one connection."""

    def __init__(self, way: Way, conversation: "_Conversation") -> None:
        self.way, self._conversation = way, conversation
        self.source: asyncio.Transport | None = None
        self.sink: asyncio.Transport | None = None
        self._queue: deque[tuple[float, bytes | None]] = deque()
        self._queued_bytes = 0
        self._is_paused = self._is_stuffed = False

    def put(self, data: bytes | None) -> None:
        """Take bytes, or None: the end."""
        self._queue.append((asyncio.get_running_loop().time() + self.way.delay_s, data))
        self._queued_bytes += len(data or b"")
        self.pump()

    def pump(self) -> None:
        """Pass on what may pass."""
        loop = asyncio.get_running_loop()
        while self._queue and self.sink is not None and self.way.mode is not Mode.HOLDS:
            due, data = self._queue[0]
            if self.way.delay_s and due > loop.time():
                loop.call_at(due, self.pump)
                break
            self._queue.popleft()
            self._queued_bytes -= len(data or b"")
            if self.way.mode is Mode.SWALLOWS or self._conversation.is_dead:
                continue
            if data is None:
                self.sink.close()
            else:
                self.sink.write(data)
        self._throttle()

    def stuff(self, *, is_stuffed: bool) -> None:
        """Stop reading while the sink takes nothing."""
        self._is_stuffed = is_stuffed
        self._throttle()

    def _throttle(self) -> None:
        wants = self._is_stuffed or self._queued_bytes > _QUEUED_BYTES_MAX
        if self.source is not None and not self.source.is_closing() and wants != self._is_paused:
            self._is_paused = wants
            (self.source.pause_reading if wants else self.source.resume_reading)()


class _End(asyncio.Protocol):
    """One end of a conversation, as the event loop sees it."""

    def __init__(
        self, came: Callable[[bytes], None], gone: Callable[[], None], stuffed: Callable[[bool], None]
    ) -> None:
        self._came, self._gone, self._stuffed = came, gone, stuffed
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._came(data)

    def pause_writing(self) -> None:
        self._stuffed(True)  # noqa: FBT003 - a callback

    def resume_writing(self) -> None:
        self._stuffed(False)  # noqa: FBT003 - a callback

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._gone()


class _Conversation:
    """One connection that somebody made, and ours to the node that it is for."""

    def __init__(self, network: "Network", node: int, port: int) -> None:
        self._network, self._port = network, port
        self.source, self.node = -1, node
        self._greeting, self._buffer = b"", FrameBuffer()
        self._out: _Pipe | None = None
        self._back: _Pipe | None = None
        self.near = _End(self._came, self._near_left, self._near_stuffed)
        self.far: _End | None = None
        self.is_dead = False
        """Nothing passes any more, whatever becomes of the ways."""
        self._ends = 1

    def pump(self) -> None:
        for pipe in (self._out, self._back):
            if pipe is not None:
                pipe.pump()

    def abort(self) -> None:
        for end in (self.near, self.far):
            if end is not None and end.transport is not None:
                end.transport.abort()

    def _came(self, data: bytes) -> None:
        if self._out is not None:
            self._out.put(data)
            return
        self._greeting += data
        for hello in self._buffer.feed(data):
            assert isinstance(hello, Hello)
            self._begin(hello.node_id if hello.role == "peer" else CLIENT)
            return

    def _begin(self, source: int) -> None:
        self.source = source
        out, back = self._network.way(source, self.node), self._network.way(self.node, source)
        self._out, self._back = _Pipe(out, self), _Pipe(back, self)
        self._out.source = self._back.sink = self.near.transport
        if Mode.REFUSES in (out.mode, back.mode):
            self.abort()
            return
        self.is_dead = Mode.SWALLOWS in (out.mode, back.mode)
        self._out.put(self._greeting)
        if not self.is_dead:
            self._network.connect(self)

    async def connect(self) -> None:
        assert self._out is not None
        assert self._back is not None
        out, back = self._out, self._back
        far = _End(back.put, self._far_left, lambda stuffed: out.stuff(is_stuffed=stuffed))
        try:
            await asyncio.get_running_loop().create_connection(lambda: far, "127.0.0.1", self._port)
        except OSError:
            self.abort()
            return
        if out.source is None or out.source.is_closing():  # Whoever connected is gone again.
            out.put(None)
        self.far, self._ends = far, self._ends + 1
        out.sink = back.source = far.transport
        self.pump()

    def _near_stuffed(self, stuffed: bool) -> None:  # noqa: FBT001 - a callback
        if self._back is not None:
            self._back.stuff(is_stuffed=stuffed)

    def _near_left(self) -> None:
        if self._out is not None:
            self._out.put(None)
        self._end()

    def _far_left(self) -> None:
        assert self._back is not None
        self._back.put(None)
        self._end()

    def _end(self) -> None:
        self._ends -= 1
        if not self._ends:
            self._network.forget(self)


class Network:
    """All ways between nodes, and from clients to nodes.  Use it as a context manager; any thread may change it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._ways: dict[tuple[int, int], Way] = {}
        self._numbers: dict[int, int] = {}
        """What nodes that have another number by now were called first."""
        self._conversations: set[_Conversation] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_ANSWER_S)
        self._loop.close()

    def front(self, node: int, port: int) -> str:
        """Return the address under which the node that listens on `port` is to be known."""

        async def listen() -> str:
            server = await self._loop.create_server(lambda: self._accept(node, port), "127.0.0.1", 0)
            self._servers.append(server)
            return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

        return asyncio.run_coroutine_threadsafe(listen(), self._loop).result(_ANSWER_S)

    def alias(self, new: int, known: int) -> None:
        """Know a node by another number too."""
        self._do(lambda: self._numbers.update({new: self._numbers.get(known, known)}))

    # -- what can happen to it ----------------------------------------------------------------------------

    def cut(self, one: int, others: Iterable[int]) -> None:
        """Let nothing pass between one and others, either way, until it is healed; nobody is told."""
        for other in others:
            self.set(one, other, Mode.HOLDS)
            self.set(other, one, Mode.HOLDS)

    def set(self, source: int, target: int, mode: Mode, delay_s: float = 0.0) -> None:
        """Change one way."""
        self._do(lambda: self._set(source, target, mode, delay_s))

    def reset(self, one: int, other: int) -> None:
        """Break all connections between two, once."""
        self._do(lambda: self._reset(one, other))

    def heal(self) -> None:
        """Let everything pass that was not swallowed."""
        self._do(self._heal)

    # -- inside, in the network's thread ------------------------------------------------------------------

    def way(self, source: int, target: int) -> Way:
        pair = (self._numbers.get(source, source), self._numbers.get(target, target))
        return self._ways.setdefault(pair, Way())

    def connect(self, conversation: _Conversation) -> None:
        task = self._loop.create_task(conversation.connect())
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def forget(self, conversation: _Conversation) -> None:
        self._conversations.discard(conversation)

    def _accept(self, node: int, port: int) -> _End:
        conversation = _Conversation(self, node, port)
        self._conversations.add(conversation)
        return conversation.near

    def _between(self, one: int, other: int) -> list[_Conversation]:
        pair = {self._numbers.get(one, one), self._numbers.get(other, other)}
        ends = ({self._numbers.get(each.source, each.source), each.node} for each in self._conversations)
        return [each for each, found in zip(self._conversations, ends, strict=True) if found == pair]

    def _set(self, source: int, target: int, mode: Mode, delay_s: float) -> None:
        way = self.way(source, target)
        way.mode, way.delay_s = mode, delay_s
        if mode is Mode.REFUSES:
            self._reset(source, target)
        for conversation in self._between(source, target):
            conversation.is_dead = conversation.is_dead or mode is Mode.SWALLOWS
            conversation.pump()

    def _reset(self, one: int, other: int) -> None:
        for conversation in self._between(one, other):
            conversation.abort()

    def _heal(self) -> None:
        for way in self._ways.values():
            way.mode, way.delay_s = Mode.PASSES, 0.0
        for conversation in list(self._conversations):
            conversation.pump()

    def _close(self) -> None:
        for server in self._servers:
            server.close()
        for conversation in list(self._conversations):
            conversation.abort()

    def _do(self, work: Callable[[], _T]) -> _T:
        """Do something in the network's thread, and return when it is done."""

        async def call() -> _T:
            return work()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(_ANSWER_S)
