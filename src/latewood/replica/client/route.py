"""Which node a client asks: the one that leads, as far as is known, else the next of the list.

Nodes say who leads, in their greeting and when they are asked in vain.  What they say is a hint: whoever cannot be
reached under it is forgotten, and the list has its turn again.

Owned by the thread of the client's event loop.
"""

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from latewood.errors import ClosedError, ClusterUnavailable, UsageError
from latewood.forking import close_after_fork, forked, keep_for_ever
from latewood.replica.client.link import Link, NotTrusted, open_link
from latewood.replica.client.options import Address, ClientOptions
from latewood.replica.client.verdict import Retry

_HOPS_MAX: Final = 3
"""From a greeting to the leader that it names, and on; then the next attempt goes on."""


class Route:
    """The connections of one client."""

    def __init__(
        self, addresses: Sequence[str], cluster_id: str, tls: ssl.SSLContext | None, options: ClientOptions
    ) -> None:
        """Take where nodes are.

        Raises:
            UsageError: there is none, or an address is no `host:port`.
        """
        if isinstance(addresses, str) or not addresses:
            raise UsageError('nodes are given as a list, as in ["10.0.0.1:7300", "10.0.0.2:7300"]')
        for address in addresses:
            Address.parse(address)
        self.addresses = list(dict.fromkeys(addresses))
        self._cluster_id, self._tls, self._options = cluster_id, tls, options
        self._links: dict[str, Link] = {}
        self._opening: dict[str, asyncio.Task[Link]] = {}
        self._target = ""
        self._turn = 0
        self._closed: ClosedError | None = None
        self._distrusted: set[str] = set()
        """Of `addresses`, those that raised `NotTrusted` since one did not."""
        self._problems: dict[str, str] = {}
        """Why there was no connection, the last time that one was tried to its end."""
        close_after_fork(self)

    def check_open(self) -> None:
        """Return if there may be connections.

        Raises:
            Forked: they are the parent process's, and this is a child of it.
            ClosedError: they were closed.
        """
        if self._closed:
            raise type(self._closed)(*self._closed.args)

    def leader_now(self) -> Link | None:
        """Return the connection that `leader` would return at once, if there is one."""
        link = self._links.get(self._target or self.addresses[self._turn % len(self.addresses)])
        return link if link is not None and link.is_open else None

    async def leader(self, deadline: float) -> Link:
        """Return a connection to the node that most likely leads; at the deadline, by the loop's clock, give up.

        Raises:
            ClusterUnavailable: it cannot be reached; the next call tries another.
            NotTrusted: that is because of certificates or of another cluster, and so at all other addresses too.
        """
        for _ in range(_HOPS_MAX):
            address = self._target or self.addresses[self._turn % len(self.addresses)]
            known = self._links.get(address)
            if known is not None and known.is_open:
                return known
            try:
                link = await self.at(address, deadline)
            except ClusterUnavailable as error:
                self.leave(address)
                if isinstance(error, NotTrusted) and not self._is_distrusted_by_all(address):
                    raise ClusterUnavailable(str(error)) from error
                raise
            welcome = link.greeted.result()
            if not welcome.leader_address or welcome.leader == welcome.node_id:
                return link
            self._target = welcome.leader_address
        return link

    async def any(self, deadline: float) -> Link:
        """Return a connection to whatever node answers; one that hangs leaves time for the others.

        Raises:
            ClusterUnavailable: none does; it says what is the matter with each.
            NotTrusted: the same, and that none of them ever will.
        """
        for link in self._links.values():
            if link.is_open:
                return link
        problems = list[ClusterUnavailable]()
        loop = asyncio.get_running_loop()
        for place, address in enumerate(self.addresses):
            share_s = (deadline - loop.time()) / (len(self.addresses) - place)
            try:
                return await self.at(address, loop.time() + share_s)
            except ClusterUnavailable as error:
                problems.append(error)
        is_final = all(isinstance(problem, NotTrusted) for problem in problems)
        raise (NotTrusted if is_final else ClusterUnavailable)("; ".join(map(str, problems)))

    async def at(self, address: str, deadline: float) -> Link:
        """Return a connection to this node; those who ask at the same time share one, each with its own deadline.

        Raises:
            ClusterUnavailable: it cannot be reached, or not by then.
        """
        self.check_open()
        known = self._links.get(address)
        if known is not None and known.is_open:
            return known
        opening = self._opening.get(address)
        if opening is None:
            opening = self._opening[address] = asyncio.create_task(self._open(address))
            opening.add_done_callback(lambda ended: self._opened(address, ended))
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.shield(opening)
        except TimeoutError:
            before = f"; before that: {self._problems[address]}" if address in self._problems else ""
            raise ClusterUnavailable(f"{address} did not answer in time{before}") from None

    def learn(self, verdict: Retry, asked: str) -> None:
        """Take what an attempt says about who leads."""
        if verdict.address:
            self.go_to(verdict.address, asked)
        elif verdict.leave and asked:
            self.leave(asked)

    def go_to(self, address: str, asked: str) -> None:
        """Ask the node at `address` next, because the one that was asked says that it leads."""
        if self._target in ("", asked) or address == asked:
            self._target = "" if address == asked else address

    def leave(self, asked: str) -> None:
        """Ask another node than this one next."""
        here = self.addresses[self._turn % len(self.addresses)]
        if asked in (self._target, here):  # Also past `here`: it may have named a leader that we cannot reach.
            self._turn += 1
        if asked == self._target:
            self._target = ""

    def leave_leader(self) -> None:
        """Ask another node next than the one that most likely leads: it may hang, and the others know who leads."""
        self.leave(self._target or self.addresses[self._turn % len(self.addresses)])

    def hangs(self, link: Link) -> None:
        """Break off a connection on which no answer comes."""
        link.close(f"{link.address} did not answer in time")

    async def close(self) -> None:
        """Close all connections."""
        self._closed = ClosedError("the client is closed; connect again")
        for task in list(self._opening.values()):
            task.cancel()
            with suppress(asyncio.CancelledError, ClusterUnavailable):
                await task
        for link in self._links.values():
            link.close()
        self._links.clear()
        await asyncio.sleep(0)  # The loop lets go of the sockets.

    def abandon_after_fork(self) -> None:
        """Refuse all further use in a forked child, whose words on these connections would be the parent's."""
        self._closed = self._closed or forked("the client")
        keep_for_ever([*self._links.values(), *self._opening.values()])
        self._links, self._opening = {}, {}

    async def _open(self, address: str) -> Link:
        patience_ms = min(self._options.connect_ms, self._options.timeout_ms)
        link = await open_link(address, self._cluster_id, self._tls, patience_ms / 1000)
        if self._closed:
            link.close()
            self.check_open()
        self._links[address] = link
        self._distrusted.clear()
        return link

    def _opened(self, address: str, ended: "asyncio.Task[Link]") -> None:
        self._opening.pop(address, None)
        problem = None if ended.cancelled() else ended.exception()  # Looked at, also if nobody waits any more.
        if problem is None:
            self._problems.pop(address, None)
        else:
            self._problems[address] = str(problem)

    def _is_distrusted_by_all(self, address: str) -> bool:
        """Note where there is no trust; if that is so everywhere, say so, and begin anew."""
        self._distrusted.add(address)
        if not self._distrusted.issuperset(self.addresses):
            return False
        self._distrusted.clear()
        return True
