"""One connection between nodes, or of a client to a node: messages in, messages out.

The first that is sent in a turn of the event loop leaves at once, all others of it in one more write.  Whoever does not
read what we send is not read any more until it does, so nobody can make us keep answers without end.

Owned by the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, cast

from latewood.limits import MiB
from latewood.replica.requests import Rejected
from latewood.replica.wire import FRAME_BYTES_MAX, FrameBuffer, Message, WireError, encode_frame

_WRITE_HIGH_BYTES: Final = 4 * MiB
"""With so much unsent, we stop reading."""
_TLS_HELLO: Final = b"\x16\x03"
"""How a conversation in TLS begins; as a frame it would be one of 352 MiB."""
_PLAIN: Final = "it speaks TLS, and this node plain text: its node.toml has no [tls]"

_logger = logging.getLogger(__name__)


class Connection(asyncio.Protocol):
    """Frames on a stream.  `on_message` gets every message; `on_close` is called once, with the reason."""

    def __init__(
        self, on_message: Callable[["Connection", Message], None], on_close: Callable[["Connection", str], None]
    ) -> None:
        self._on_message, self._on_close = on_message, on_close
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = FrameBuffer()
        self._out: list[bytearray] = []
        self._out_bytes = 0
        self._has_sent = False
        self._reason = ""
        self.node_id = 0
        """Who is there, once that is known; 0: a client, or nobody yet."""
        self.is_greeted = False
        self.name = "somebody"

    @property
    def is_open(self) -> bool:
        """Whether what is sent can arrive."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        """What waits to leave."""
        return self._out_bytes + (self._transport.get_write_buffer_size() if self._transport else 0)

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The other's certificate; None in plain text."""
        return self._transport.get_extra_info("peercert") if self._transport else None

    def greeted(self, node_id: int, name: str) -> None:
        """Know who is there: from now on frames may be large."""
        self.node_id, self.name, self.is_greeted = node_id, name, True
        self._buffer.bytes_max = FRAME_BYTES_MAX

    def send(self, message: Message) -> None:
        """Send a message, soon; if the connection is closed it is lost."""
        self.send_frame(encode_frame(message))

    def send_frame(self, frame: bytearray) -> None:
        """Send what `encode_frame` returned."""
        if self._has_sent:
            self._out.append(frame)
            self._out_bytes += len(frame)
        elif self._transport is not None and not self._transport.is_closing():
            self._has_sent = True
            self._loop.call_soon(self._flush)
            self._transport.write(frame)

    def close(self, reason: str) -> None:
        """Close, after what was sent has left."""
        self._reason = self._reason or reason
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    # -- called by the event loop -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no class that asyncio knows.
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)

    def data_received(self, data: bytes) -> None:
        """Hand messages on; what is no message ends the connection."""
        try:
            for message in self._buffer.feed(data):
                self._on_message(self, message)
                if self._reason:
                    return
        except WireError as error:
            if not self.is_greeted and data.startswith(_TLS_HELLO):
                _logger.warning("a connection is refused: %s", _PLAIN)
                self.send(Rejected(_PLAIN))  # It cannot read that, and so it knows.
                self.close(_PLAIN)
                return
            _logger.warning("%s sent what is no message: %s", self.name, error)
            self.abort(str(error))

    def pause_writing(self) -> None:
        """Stop reading from somebody who does not read."""
        if self.is_open and self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on reading."""
        if self.is_open and self._transport is not None:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._transport = None
        self._out.clear()
        self._on_close(self, self._reason or (str(exc) if exc else "the other end closed the connection"))

    def _flush(self) -> None:
        self._has_sent = False
        if self._out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._out))
        self._out.clear()
        self._out_bytes = 0
