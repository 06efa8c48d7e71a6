"""Checksums of long stretches of one buffer, without reading them again.

Looking for a record at every 8th byte meets many lengths that only look like one, and to sum all those stretches would
take time in the square of the buffer.  Instead the CRC of the buffer up to every 4 KiB is kept, from which that of any
stretch follows: crc(head + rest) = shift(crc(head), len(rest)) ^ crc(rest), where `shift` takes logarithmic time.
"""

from functools import cache
from typing import Final

from google_crc32c import extend

_POLYNOMIAL: Final = 0x82F63B78
_STEP: Final = 4096
_SHORT: Final = 4 * _STEP

Matrix = tuple[int, ...]


def _times(matrix: Matrix, vector: int) -> int:
    product = 0
    for row in matrix:
        if vector & 1:
            product ^= row
        vector >>= 1
        if not vector:
            break
    return product


@cache
def _zeros(power: int) -> Matrix:
    """Return what 2**power zero bits do to a CRC.  At most 64 of these are kept."""
    if power == 0:
        return (_POLYNOMIAL, *(1 << bit for bit in range(31)))
    half = _zeros(power - 1)
    return tuple(_times(half, row) for row in half)


def shift(crc: int, length: int) -> int:
    """Return `crc` as `length` bytes after it move it."""
    power = 3
    while length:
        if length & 1:
            crc = _times(_zeros(power), crc)
        length >>= 1
        power += 1
    return crc


class Sums:
    """CRC-32C of any stretch of `view[offset:limit]`."""

    __slots__ = ("_limit", "_offset", "_prefixes", "_view")

    def __init__(self, view: memoryview, offset: int, limit: int) -> None:
        self._view = view
        self._offset = offset
        self._limit = limit
        self._prefixes: list[int] = []

    def crc(self, seed: int, start: int, stop: int) -> int:
        """Return the CRC of `view[start:stop]`, extended from `seed`."""
        if stop - start < _SHORT:
            return int(extend(seed, self._view[start:stop].tobytes()))
        prefixes = self._prefixes or self._sum_up()
        first = -(-(start - self._offset) // _STEP)
        last = (stop - self._offset) // _STEP
        middle, end = (self._offset + place * _STEP for place in (first, last))
        seed = extend(seed, self._view[start:middle].tobytes())
        # The CRC from middle to end, as if from 0, joined to what is before it: two shifts of the same length are one.
        seed = shift(seed ^ prefixes[first], end - middle) ^ prefixes[last]
        return int(extend(seed, self._view[end:stop].tobytes()))

    def _sum_up(self) -> list[int]:
        crc = 0
        self._prefixes.append(crc)
        for place in range(self._offset, self._limit - _STEP + 1, _STEP):
            crc = extend(crc, self._view[place : place + _STEP].tobytes())
            self._prefixes.append(crc)
        return self._prefixes
