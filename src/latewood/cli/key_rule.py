"""Where `latewood append` finds the keys of records: nowhere, in a field of JSON lines, or in front of a separator."""

from collections.abc import Callable

import click

from latewood.cli.batch import Batch, check_key, decode_json, decode_keyed_lines, decode_lines
from latewood.errors import UsageError


class KeyRule:
    """What the options about keys say together."""

    def __init__(self, field: str | None, separator: str | None, *, is_json: bool) -> None:
        """Take the options.

        Raises:
            UsageError: they contradict each other.
        """
        if [field is not None, separator is not None, is_json].count(True) > 1:
            message = "--json, --key-from and --key-separator exclude each other"
            raise click.UsageError(message, click.get_current_context())
        if separator == "":
            message = "--key-separator must not be empty"
            raise click.UsageError(message, click.get_current_context())
        self._field, self._separator, self._is_json = field, separator, is_json

    def decoder(self, ext_id: int, *, keyed: bool) -> Callable[[list[bytes]], Batch]:
        """Return what turns lines into records, for something that has keys or not.

        Raises:
            UsageError: it has none, and they were asked for.
        """
        if self._is_json:
            return lambda lines: decode_json(lines, keyed=keyed)
        if self._field is None and self._separator is None:
            return lambda lines: decode_lines(lines, ext_id)
        if not keyed:
            raise UsageError("the database was made without keys")
        key_of = self._before_separator if self._field is None else self._in_field
        return lambda lines: decode_keyed_lines(lines, ext_id, key_of)

    def _in_field(self, line: bytes) -> tuple[bytes, bytes]:
        import msgspec  # noqa: PLC0415 - only for JSON

        try:
            fields = msgspec.json.decode(line, type=dict[str, object])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            message = f"not a JSON object: {error}"
            raise UsageError(message) from None
        key = fields.get(self._field or "")
        if key is None:
            message = f"this line has no field {self._field!r} to take the key from"
            raise UsageError(message)
        return check_key(key.encode() if isinstance(key, str) else msgspec.json.encode(key)), line

    def _before_separator(self, line: bytes) -> tuple[bytes, bytes]:
        separator = (self._separator or "").encode()
        key, found, payload = line.partition(separator)
        if not found:
            message = f"this line has no {self._separator!r} to take the key before"
            raise UsageError(message)
        return check_key(key), payload
