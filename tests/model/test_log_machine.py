"""A log does what its model does, whatever happens to it."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.model.effort import search
from tests.model.machine import Machine, ext_ids, timestamps_ns

pytestmark = pytest.mark.slow


class LogMachine(Machine):
    """Everything that can be done to a log."""

    @rule(ext_id=ext_ids)
    def set_ext_id(self, ext_id: int) -> None:
        self.pair.set_ext_id(ext_id)

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        sequences = st.none() | st.integers(0, self.pair.model.end + 2)
        self.pair.read(data.draw(sequences), data.draw(sequences))

    @rule(timestamp_ns=timestamps_ns)
    def find_timestamp(self, timestamp_ns: int) -> None:
        self.pair.find_timestamp(timestamp_ns)


def test_a_log_does_what_its_model_does(campaign: bool) -> None:  # noqa: FBT001
    search(LogMachine, campaign=campaign)
