"""The last entries of a parent log, in memory: nodes that keep up are served from here."""

from collections import deque
from collections.abc import Iterator
from itertools import islice

from latewood.replica.engine import Entry


class RecentEntries:
    """The last entries of a parent log.  Its owner guards it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._entries: deque[Entry] = deque()

    @property
    def first_index(self) -> int | None:
        """The oldest of them."""
        return self._entries[0].index if self._entries else None

    def add(self, entry: Entry) -> None:
        """Keep an entry, and let go of the oldest beyond the bound."""
        self._entries.append(entry)
        self._bytes += len(entry.data)
        while self._bytes > self._bytes_max and len(self._entries) > 1:
            self._bytes -= len(self._entries.popleft().data)

    def cut(self, index: int) -> None:
        """Forget entries from `index` on: others take their place."""
        while self._entries and self._entries[-1].index >= index:
            self._bytes -= len(self._entries.pop().data)

    def forget_to(self, index: int) -> None:
        """Forget entries up to `index`."""
        while self._entries and self._entries[0].index <= index:
            self._bytes -= len(self._entries.popleft().data)

    def range(self, low: int, high: int) -> Iterator[Entry]:
        """Return those from `low`, below `high`, which are here."""
        first = self._entries[0].index
        return islice(self._entries, low - first, high - first)
