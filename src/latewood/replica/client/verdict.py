"""What a client makes of the end of an attempt: return, go elsewhere, try again, or raise.  Pure.

The one question that matters is whether something may have been done.  A refusal and `NotLeader` say that it was not,
by this attempt; a lost connection and a silent node leave it open.  Once it is open it stays open until a node answers
the same request, so an error that says "nothing was written" is never raised after that.
"""

from typing import Final, NamedTuple, TypeAlias

from latewood.errors import (
    ClusterUnavailable,
    DataLost,
    LatewoodError,
    NotFoundError,
    OutcomeForgotten,
    OutcomeUnknown,
    Overloaded,
    PayloadTooLarge,
    UnavailableError,
    UsageError,
    WaitExpired,
)
from latewood.replica.replies import Code, NotLeader, Refused
from latewood.replica.wire import Reply

NOTHING_DONE: Final = "; nothing was done, try again"
_SURE: Final[frozenset[Code]] = frozenset({"too_large", "usage", "not_found", "data_lost"})
"""Refusals that every attempt at the same request gets: so no earlier one was carried out."""
_STAYING: Final[frozenset[Code]] = frozenset({"overloaded", "expired"})
"""Refusals of a node that is well, and would be the right one to ask again."""
_ERRORS: Final[dict[Code, type[LatewoodError]]] = {
    "expired": WaitExpired,
    "too_large": UsageError,
    "usage": UsageError,
    "not_found": NotFoundError,
    "too_old": OutcomeForgotten,
    "unknown": OutcomeUnknown,
}


class Nature(NamedTuple):
    """What kind of request it is."""

    changes: bool
    """It changes something, so that its end matters."""
    repeatable: bool = True
    """The same again does no harm."""


READING: Final = Nature(changes=False)
CHANGING: Final = Nature(changes=True)
ONCE: Final = Nature(changes=True, repeatable=False)


class Lost(NamedTuple):
    """An attempt that got no answer."""

    reason: str
    was_sent: bool
    """Some of it may have reached a node."""
    is_final: bool = False
    """It would be so again: there is no sense in another attempt."""


class Return(NamedTuple):
    """The answer is there."""

    reply: Reply


class Retry(NamedTuple):
    """Try again: at `address`, if a node named the leader, else wherever one may be."""

    in_doubt: bool
    why: LatewoodError
    address: str = ""
    leave: bool = True
    """The node that was asked does not lead, or hangs: ask another."""


class Raise(NamedTuple):
    """It will not get better."""

    error: LatewoodError


Verdict: TypeAlias = Return | Retry | Raise


def judge(outcome: Reply | Lost, nature: Nature, *, in_doubt: bool) -> Verdict:
    """Return what to do after an attempt; `in_doubt`: an earlier one may have been carried out."""
    match outcome:
        case Lost():
            return _after_loss(outcome, nature, in_doubt=in_doubt)
        case NotLeader():
            who = f"node {outcome.leader} leads" if outcome.leader else "no node leads now"
            return Retry(in_doubt, ClusterUnavailable(who), outcome.address)
        case Refused():
            return _after_refusal(outcome, nature, in_doubt=in_doubt)
        case _:
            return Return(outcome)


def give_up(last: LatewoodError | None, waited: str, *, in_doubt: bool) -> LatewoodError:
    """Return the error for a deadline that has come."""
    said = str(last).removesuffix(NOTHING_DONE) if last else ""
    reason = f"no answer within {waited}" + (f"; last: {said}" if said else "")
    if in_doubt:
        return OutcomeUnknown(reason)
    if isinstance(last, (Overloaded, WaitExpired)):  # They say more: what was begun may go on.
        return last
    return ClusterUnavailable(reason + NOTHING_DONE)


def error_of(refused: Refused) -> LatewoodError:
    """Return a refusal as the error that the embedded log would raise."""
    match refused.code:
        case "overloaded":
            return Overloaded(refused.partition, refused.limit or refused.reason, refused.value, refused.bound)
        case "too_large" if refused.bound:
            return PayloadTooLarge(refused.value, refused.bound)
        case "data_lost":
            return DataLost(refused.value, refused.bound)
        case _:
            return _ERRORS.get(refused.code, UnavailableError)(refused.reason)


def wrong_kind(reply: Reply, kind: type[object], address: str) -> OutcomeUnknown:
    """Return the error for an answer to another question."""
    message = f"{address} answered with {type(reply).__name__} instead of {kind.__name__}; is it of another version?"
    return OutcomeUnknown(message)


def _after_loss(lost: Lost, nature: Nature, *, in_doubt: bool) -> Verdict:
    in_doubt = in_doubt or (nature.changes and lost.was_sent)
    if in_doubt and not nature.repeatable:
        return Raise(OutcomeUnknown(lost.reason))
    if lost.is_final:
        return Raise(OutcomeUnknown(lost.reason) if in_doubt else ClusterUnavailable(lost.reason))
    return Retry(in_doubt, ClusterUnavailable(lost.reason))


def _after_refusal(refused: Refused, nature: Nature, *, in_doubt: bool) -> Verdict:
    error = error_of(refused)
    in_doubt = in_doubt or (nature.changes and refused.code in ("unknown", "too_old"))
    if in_doubt and not nature.repeatable:
        return Raise(OutcomeUnknown(refused.reason))
    if refused.retryable:
        return Retry(in_doubt, error, leave=refused.code not in _STAYING)
    if in_doubt and refused.code not in _SURE:
        return Raise(error if isinstance(error, OutcomeUnknown) else OutcomeUnknown(refused.reason))
    return Raise(error)
