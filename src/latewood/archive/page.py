"""The headers of Parquet pages, read before anything is decompressed.

A page header says how much memory its page takes, and the Parquet library believes it.  So we look first: a page that
declares more than a row group may have is damage or an attack, and an error here, not an allocation there.

Page headers are Thrift structs in the compact protocol; this reads as much of that as they use.
"""

from typing import Any, Final, NamedTuple

DATA_PAGE: Final = 0
DICTIONARY_PAGE: Final = 2

_DEPTH_MAX: Final = 8
_VARINT_BITS_MAX: Final = 63
_TRUE, _FALSE, _BYTE, _I64, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 6, 7, 8, 9, 10, 12
_I16: Final = 4
_HEADER_OF: Final = {DATA_PAGE: 5, DICTIONARY_PAGE: 7}
"""The field with the rest of the header, by kind of page."""


class PageHeader(NamedTuple):
    """What one page says about itself."""

    kind: int
    plain_bytes: int
    stored_bytes: int
    values: int
    size: int
    """Bytes of the header itself."""


class BadPage(Exception):  # never leaves this package: the reader turns it into a CorruptError
    """A header that is none, or that declares what cannot be."""


def read_page_header(data: memoryview, offset: int) -> PageHeader:
    """Return the header at `offset`.

    Raises:
        BadPage: there is none.
    """
    scanner = _Scanner(data, offset)
    try:
        fields = scanner.struct(0)
        kind = fields[1]
        header = PageHeader(kind, fields[2], fields[3], fields[_HEADER_OF[kind]][1], scanner.at - offset)
    except (IndexError, KeyError, TypeError):
        raise BadPage("a page has no header, or one that a chunk does not have") from None
    if min(header.plain_bytes, header.stored_bytes, header.values) < 0:
        raise BadPage("a page has a negative length")
    return header


def check_pages(data: memoryview, rows: int, plain_bytes_max: int) -> int:
    """Return how much memory the pages of one column take; `data` is all of that column in one row group.

    Raises:
        BadPage: they take more than they may, or do not have `rows` values.
    """
    at = plain = values = 0
    while at < len(data):
        header = read_page_header(data, at)
        at += header.size + header.stored_bytes
        plain += header.plain_bytes
        values += header.values if header.kind == DATA_PAGE else 0
        if plain > plain_bytes_max:
            raise BadPage(f"pages declare more than {plain_bytes_max:,} bytes")
        if header.values > rows or values > rows or at > len(data):
            raise BadPage("a page declares more than there is")
    if values != rows:
        raise BadPage(f"pages have {values} values for {rows} rows")
    return plain


def column_spans(data: memoryview, rows: int, columns: int) -> list[tuple[int, int]]:
    """Return where each column begins and ends in the bytes of one row group.

    Raises:
        BadPage: they are not so many columns of so many rows.
    """
    spans, at = list[tuple[int, int]](), 0
    while len(spans) < columns:
        start, values = at, 0
        while values < rows:
            header = read_page_header(data, at)
            at += header.size + header.stored_bytes
            values += header.values if header.kind == DATA_PAGE else 0
        spans.append((start, at))
    if at != len(data):
        raise BadPage("a row group has more than its columns")
    return spans


class _Scanner:
    """A place in Thrift's compact protocol.  Each length is checked against the data before it is believed."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self.at = data, at

    def struct(self, depth: int) -> dict[int, Any]:
        """Read a struct; its fields by number."""
        self._check_depth(depth)
        fields, number = dict[int, Any](), 0
        while head := self._byte():
            delta, kind = head >> 4, head & 15
            number = number + delta if delta else self._zigzag()
            fields[number] = self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _BYTE:
            return self._byte()
        if _I16 <= kind <= _I64:
            return self._zigzag()
        if kind == _STRUCT:
            return self.struct(depth + 1)
        return self._passed(kind, depth)

    def _passed(self, kind: int, depth: int) -> int:
        """Pass over a value that no one asks for."""
        if kind == _DOUBLE:
            return self._skip(8)
        if kind == _BINARY:
            return self._skip(self._varint())
        if kind in (_LIST, _SET):
            return self._list(depth)
        raise BadPage("a page header has a field of no known kind")

    def _check_depth(self, depth: int) -> None:
        if depth > _DEPTH_MAX:
            raise BadPage("a page header is nested too deep")

    def _list(self, depth: int) -> int:
        self._check_depth(depth)
        head = self._byte()
        count, kind = head >> 4, head & 15
        count = self._varint() if count == 15 else count  # noqa: PLR2004 - the protocol's mark for a longer list
        if count > len(self._data) - self.at:
            raise BadPage("a page header declares more than there is")
        for _ in range(count):
            self._value(kind if kind not in (_TRUE, _FALSE) else _BYTE, depth + 1)
        return count

    def _skip(self, length: int) -> int:
        if length > len(self._data) - self.at:
            raise BadPage("a page header declares more than there is")
        self.at += length
        return length

    def _byte(self) -> int:
        byte = self._data[self.at]
        self.at += 1
        return byte

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:  # noqa: PLR2004 - the top bit says that more follows
                return value
            shift += 7
            if shift > _VARINT_BITS_MAX:
                raise BadPage("a page header has a number that is too long")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
