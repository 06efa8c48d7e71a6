"""Handlers: which function does jobs of which kind.

A handler may be killed at any moment and run again, from the start, with the same payload: it must come to the same
end.  Ways to that: look at what is there before doing it; write under a name that the payload decides; and return what
changes in the catalog, which is then committed together with the job's completion.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from latewood.catalog import Op
from latewood.catalog.tables import JobKind, JobRecord
from latewood.errors import UsageError
from latewood.jobs.handlers.context import JobContext
from latewood.jobs.kinds import kind_name

Result: TypeAlias = Sequence[Op] | None
"""What a handler returns: changes of the catalog that are committed together with the job's completion."""

Handler: TypeAlias = Callable[[JobContext], Result]


class _Entry(NamedTuple):
    run: Handler
    repair: Handler


class Handlers:
    """The handlers of one program.  Register all of them before a pool starts."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}

    def register(self, kind: int, run: Handler, *, repair: Handler | None = None) -> None:
        """Have `run` do jobs of a kind.

        `repair` mends what a `run` that broke off has left, before the gate opens and the job is tried again; its
        payload is `{"job_id": …, "kind": …, "payload": …}` of that job.  Without one there is nothing to mend: running
        an idempotent handler again is enough.

        Raises:
            UsageError: the kind has a handler, or is that of repairs.
        """
        if kind in self._entries or kind == JobKind.REPAIR:
            message = f"jobs of kind {kind_name(kind)} have a handler already"
            raise UsageError(message)
        self._entries[kind] = _Entry(run, repair or _nothing_to_mend)

    def handler(self, kind: int, *, repair: Handler | None = None) -> Callable[[Handler], Handler]:
        """Register the function below, as a decorator."""

        def add(run: Handler) -> Handler:
            self.register(kind, run, repair=repair)
            return run

        return add

    def update(self, others: "Handlers") -> None:
        """Take on the handlers of another registry.  UsageError if both have one for a kind."""
        for kind, entry in others._entries.items():  # noqa: SLF001 - of this very class
            self.register(kind, entry.run, repair=entry.repair)

    def of(self, job: JobRecord) -> Handler:
        """Return what does this job.

        Raises:
            UsageError: nothing does.
        """
        entry = self._entries.get(job.gate_kind)
        if entry is None:
            message = f"no handler is registered for jobs of kind {kind_name(job.gate_kind)}"
            raise UsageError(message)
        return entry.run if job.repairs_kind is None else entry.repair

    def __contains__(self, kind: object) -> bool:
        return kind in self._entries

    def __iter__(self) -> Iterator[int]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _nothing_to_mend(context: JobContext) -> Result:
    context.check()
    return None
