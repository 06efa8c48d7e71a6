"""A record as JSON: what `latewood append --json` reads on each line, and `latewood cat` prints."""

from typing import Final

import msgspec

from latewood.errors import UsageError
from latewood.limits import TIMESTAMP_NS_MAX, U64_MAX


class JSONRecord(msgspec.Struct, forbid_unknown_fields=True):
    """One line.  Its shard and sequence are not heeded: a key picks the shard, and logs number their records."""

    payload: str | None = None
    payload_base64: bytes | None = None
    ext_id: int = 0
    timestamp_ns: int | None = None
    sequence: int | None = None
    shard: int | None = None
    key: str | None = None
    key_base64: bytes | None = None

    @property
    def data(self) -> bytes:
        """The payload, whichever way it was written."""
        return self.payload.encode() if self.payload is not None else self.payload_base64 or b""

    @property
    def key_data(self) -> bytes | None:
        """The key, whichever way it was written, if there is one."""
        return self.key.encode() if self.key is not None else self.key_base64


_DECODER: Final = msgspec.json.Decoder(JSONRecord)


def decode_record(line: bytes) -> JSONRecord:
    """Return the record on a line.

    Raises:
        UsageError: it is not one; the text says why.
    """
    try:
        record = _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"not a record in JSON: {error}"
        raise UsageError(message) from None
    if (record.payload is None) == (record.payload_base64 is None):
        raise UsageError("not a record: it needs either payload or payload_base64")
    if record.key is not None and record.key_base64 is not None:
        raise UsageError("not a record: it has both key and key_base64")
    _check("ext_id", record.ext_id, U64_MAX)
    _check("timestamp_ns", record.timestamp_ns or 0, TIMESTAMP_NS_MAX)
    return record


def _check(name: str, value: int, highest: int) -> None:
    if not 0 <= value <= highest:
        message = f"not a record: {name} must be from 0 to {highest}, not {value}"
        raise UsageError(message)
