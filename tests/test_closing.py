"""The end of many parts: all of them are closed, and one error tells of all that failed."""

import pytest

from latewood.closing import NOTES_MAX, Closing, close_behind
from latewood.errors import DiskFull, Poisoned, StorageError


def fail(error: BaseException) -> None:
    raise error


def closed(*errors: BaseException | None) -> list[int]:
    """Close parts that fail so, None not at all; return which of them were reached."""
    reached: list[int] = []

    def step(number: int, error: BaseException | None) -> None:
        reached.append(number)
        if error is not None:
            raise error

    with Closing() as closing:
        for number, error in enumerate(errors):
            closing(lambda number=number, error=error: step(number, error))  # type: ignore[misc]
    return reached


def test_parts_that_end_well_raise_nothing() -> None:
    assert closed(None, None) == [0, 1]


def test_one_failure_is_raised_as_it_is() -> None:
    with pytest.raises(DiskFull, match="first") as caught:
        closed(None, DiskFull("first"), None)
    assert not hasattr(caught.value, "__notes__")


def test_the_first_of_many_failures_is_raised_and_the_others_are_its_notes() -> None:
    with pytest.raises(DiskFull, match="first") as caught:
        closed(DiskFull("first"), StorageError("second"), OSError("third"))
    assert caught.value.__notes__ == [
        "closing went on, and met StorageError: second",
        "closing went on, and met OSError: third",
    ]


def test_records_in_doubt_come_before_a_full_disk_and_an_interrupt_before_both() -> None:
    with pytest.raises(Poisoned, match="second"):
        closed(DiskFull("first"), Poisoned("second"))
    with pytest.raises(KeyboardInterrupt):
        closed(DiskFull("first"), Poisoned("second"), KeyboardInterrupt())


def test_notes_of_failures_are_kept() -> None:
    inner = Poisoned("shard 7")
    inner.add_note("closing went on, and met DiskFull: shard 8")
    with pytest.raises(Poisoned, match="first") as caught:
        closed(Poisoned("first"), inner)
    assert caught.value.__notes__[-1] == "closing went on, and met DiskFull: shard 8"


def test_of_very_many_failures_the_rest_is_counted() -> None:
    with pytest.raises(DiskFull) as caught:
        closed(*(DiskFull(str(number)) for number in range(NOTES_MAX + 4)))
    assert caught.value.__notes__[-1] == "and 3 more failures"


def in_a_block(part: BaseException, own: BaseException) -> None:
    with Closing() as closing:
        closing(lambda: fail(part))
        raise own


def test_an_error_of_the_block_itself_is_told_with_those_of_the_parts() -> None:
    with pytest.raises(DiskFull) as caught:
        in_a_block(DiskFull("of a part"), StorageError("of the block"))
    assert caught.value.__notes__ == ["closing went on, and met StorageError: of the block"]
    with pytest.raises(Poisoned) as worse:
        in_a_block(DiskFull("of a part"), Poisoned("of the block"))
    assert worse.value.__notes__ == ["closing went on, and met DiskFull: of a part"]


class _Closed:
    """Something whose closing fails."""

    def __init__(self, met: BaseException) -> None:
        self._met = met

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        close_behind(lambda: fail(self._met), error)


@pytest.mark.parametrize(
    ("block", "met", "raised", "note"),
    [
        (ValueError("mine"), DiskFull("full"), ValueError, "closing it met DiskFull: full"),
        (KeyboardInterrupt("stop"), Poisoned("in doubt"), KeyboardInterrupt, "closing it met Poisoned: in doubt"),
        (Poisoned("first"), Poisoned("second"), Poisoned, "closing it met Poisoned: second"),
        (ValueError("mine"), Poisoned("in doubt"), Poisoned, "before it was closed there was ValueError: mine"),
    ],
)
def test_what_a_block_raised_goes_on_unless_closing_meets_something_graver(
    block: BaseException, met: BaseException, raised: type[BaseException], note: str
) -> None:
    with pytest.raises(raised) as caught, _Closed(met):
        fail(block)
    assert caught.value.__notes__ == [note]
    assert caught.value is block or caught.value.__context__ is block
    assert not caught.value.__suppress_context__


def test_what_closing_met_is_raised_if_the_block_raised_nothing() -> None:
    with pytest.raises(DiskFull, match="full"):
        close_behind(lambda: fail(DiskFull("full")), None)
    close_behind(lambda: None, ValueError("goes on by itself"))
