"""Runs roll.txt against a log on a disk in memory."""

from pathlib import Path

import pytest

from latewood import Queue, RecordTooLarge
from latewood.log.listing import list_segments
from tests.log.desk import Desk
from tests.scenarios.script import Scenario, milliseconds, scenarios


class Player:
    """Plays one scenario and keeps what there is to tell."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._log: Queue | None = None
        self.told: list[str] = []

    @property
    def log(self) -> Queue:
        assert self._log is not None, "a scenario begins with `open`"
        return self._log

    def play(self, word: str, arguments: list[str]) -> None:
        match word:
            case "open":
                self._open(dict(zip(arguments[::2], arguments[1::2], strict=True)))
            case "append":
                self._append([bytes(int(size)) for size in arguments])
            case "wait":
                self._desk.clock.advance(ms=milliseconds(arguments[0]))
            case "background":
                self.log._writer.housekeep()
            case "roll":
                self.log.roll()
            case "cohort":
                self.log.set_ext_id(int(arguments[0]))
            case _:
                raise AssertionError(f"a scenario does not speak of {word!r}")

    def tell_segments(self) -> None:
        for info in list_segments(self.log):
            count = f"{info.record_count} record{'' if info.record_count == 1 else 's'}"
            end = info.size_bytes if info.state == "open" else self._records_end(info.path)
            cohort = f", cohort {info.ext_id}" if info.ext_id else ""
            state = ", open" if info.state == "open" else ""
            self.told.append(f"segment {info.segment_id}: {count}, {end} bytes{cohort}{state}")

    def _open(self, options: dict[str, str]) -> None:
        if self._log is not None:
            self._log.close()
        self._log = self._desk.open(
            segment_bytes_max=int(options["bytes"]),
            segment_records_max=int(options["records"]) if "records" in options else None,
            segment_age_max_ms=milliseconds(options["age"]) if "age" in options else None,
        )

    def _append(self, batch: list[bytes]) -> None:
        try:
            self.log.append(batch[0]) if len(batch) == 1 else self.log.append_many(batch)
        except RecordTooLarge as error:
            self.told.append(f"refused: {error.payload_bytes} bytes, at most {error.payload_bytes_max}")

    def _records_end(self, path: Path) -> int:
        """Header and records, without the seal behind them."""
        return self._desk.footer(self._desk.segment_paths().index(path)).index_offset


@pytest.mark.parametrize("scenario", scenarios(Path(__file__).with_name("roll.txt")), ids=str)
def test_a_log_rolls_as_the_scenario_says(scenario: Scenario) -> None:
    with Desk() as desk:
        player = Player(desk)
        for word, *arguments in scenario.input:
            player.play(word, arguments)
        player.tell_segments()
        assert player.told == scenario.expected
