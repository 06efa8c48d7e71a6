"""How a client behaves: timeouts, pauses, and how much it has on the way.  Values; no socket."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from latewood.errors import UsageError
from latewood.limits import KiB, MiB
from latewood.replica.requests import GROUP_REQUESTS_MAX, REQUEST_WINDOW

PORT_MAX: Final = 65_535
PATIENCE_MS_MAX: Final = 5 * 60 * 1000
"""Nodes forget a client that is silent for three times this, and with it what would recognize a repetition."""
_DOUBLINGS_MAX: Final = 30


class Address(NamedTuple):
    """Where a node listens."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Return the address in `host:port`, or `[::1]:port`.

        Raises:
            UsageError: it is none.
        """
        host, colon, port = str(text).strip().rpartition(":")
        if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) <= PORT_MAX:
            message = f"an address is host:port, as in 10.0.0.1:7300 or [::1]:7300, not {text!r}"
            raise UsageError(message)
        return cls(host.removeprefix("[").removesuffix("]"), int(port))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """What may be chosen for a client; each has a default that suits most."""

    timeout_ms: int = 30_000
    """A call gives up after this, retries included.  Longer than an election takes, by far."""

    attempt_ms: int = 3_000
    """A node that has not answered for so long is left, and another asked: it may hang."""

    connect_ms: int = 2_000
    """For a connection with its greeting."""

    pause_first_ms: int = 10
    """Before the second attempt; it doubles with each."""

    pause_max_ms: int = 500
    """No pause is longer: a new leader is there within about a second."""

    batch_records_max: int = 256
    """Records that wait together travel in one request, so many at most."""

    batch_bytes_max: int = 1 * MiB
    """And so many bytes, beyond the first record."""

    pipeline: int = 64
    """Requests to one partition that are on the way at a time.

    With more than one, records of different calls that overlap may change places when an attempt fails.  1 keeps the
    order of the calls whatever happens, and is slower.
    """

    queued_bytes_max: int = 64 * MiB
    """Records that wait in this client or are on the way; beyond, `append` waits for its turn."""

    def __post_init__(self) -> None:
        """Check every field once.

        Raises:
            UsageError: a value out of bounds.
        """
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                message = f"{name} is a whole number from 1 on, not {value!r}"
                raise UsageError(message)
        if self.timeout_ms > PATIENCE_MS_MAX:
            message = f"timeout_ms is at most {PATIENCE_MS_MAX:,}, five minutes: nodes forget requests in the end"
            raise UsageError(message)
        if self.pipeline >= REQUEST_WINDOW:
            message = f"pipeline is at most {REQUEST_WINDOW - 1}: nodes remember no more requests of a client"
            raise UsageError(message)
        if self.batch_records_max > GROUP_REQUESTS_MAX:
            message = f"batch_records_max is at most {GROUP_REQUESTS_MAX:,}: nodes take no more requests in one message"
            raise UsageError(message)
        if self.batch_bytes_max > 16 * MiB or self.queued_bytes_max < 64 * KiB:
            message = "batch_bytes_max is at most 16 MiB, half a frame, and queued_bytes_max at least 64 KiB"
            raise UsageError(message)

    def pause_s(self, attempt: int, chance: float) -> float:
        """Return the pause after attempt number `attempt` (from 1), for a chance from 0 up to 1."""
        longest_ms = min(self.pause_max_ms, self.pause_first_ms << min(attempt - 1, _DOUBLINGS_MAX))
        return longest_ms * (1 - chance / 2) / 1000
