"""The campaign of identities in short: every event once, and that planted bugs are caught."""

from random import Random

import pytest

from tests.identity import campaign
from tests.identity.book import Book, Found, Place, Wrong
from tests.identity.campaign import Failure, caught, main, played
from tests.identity.closed import OF_NODES
from tests.identity.planted import BUGS
from tests.identity.rounds import ALL, draw

SEEDS = 2_000
"""Among so many seeds every event is drawn, with each of its subjects."""
BUG_SEEDS = 40
"""Most planted bugs are caught by the first seed or the second."""


def seeds_of(event: str) -> list[int]:
    """Return one seed of an event for each of its subjects, rather in company."""
    found: dict[str, int] = {}
    for seed in range(SEEDS):
        subject, drawn, company = draw(seed)
        if drawn == event and (subject not in found or (company != "idle" and draw(found[subject])[2] == "idle")):
            found[subject] = seed
    return list(found.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "event", [pytest.param(event, marks=pytest.mark.needs("native") if event in OF_NODES else ()) for event in ALL]
)
def test_nothing_is_lost_mixed_up_or_passed_over_in_silence(event: str, *, campaign: bool) -> None:
    seeds = seeds_of(event)
    for seed in seeds if campaign else [Random(event).choice(seeds)]:
        outcome = played(seed)
        assert not isinstance(outcome, Failure), f"seed {seed}, {', '.join(outcome.given)}:\n{outcome.reason}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.needs("campaign") if bug.is_rare else ()) for name, bug in BUGS.items()],
)
def test_a_planted_bug_is_caught(name: str) -> None:
    assert caught(BUGS[name], BUG_SEEDS), f"missed by {BUG_SEEDS} seeds"


def test_a_broken_promise_is_printed_with_its_seed_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise Wrong("it was lost")

    monkeypatch.setattr(campaign, "play", broken)
    assert main(["--seeds", "17:18"]) == 1
    shown = capsys.readouterr().out
    assert "seed 17, " in shown
    assert "it was lost" in shown
    assert "broken promises  1: seeds 17" in shown


@pytest.mark.parametrize(
    ("found", "what"),
    [
        ([], "are lost"),
        ([Found(Place(0, 0), b"log 1")], "never written"),
        ([Found(Place(0, 0), b"second"), Found(Place(0, 1), b"first")], "another than was acknowledged"),
        ([Found(Place(0, 0), b"first"), Found(Place(0, 1), b"first")], "stand twice"),
        ([Found(Place(0, 0), b"first"), Found(Place(0, 2), b"second")], "has gaps"),
    ],
)
def test_a_book_knows_what_is_wrong(found: list[Found], what: str) -> None:
    book = Book("log")
    book.asked = {b"first", b"second"}
    book.keep(0, [0], [b"first"])
    book.check([Found(Place(0, 0), b"first")])
    with pytest.raises(Wrong, match=what):
        book.check(found)
