"""Parcels: many small things, a task of each bundle of them.  Pure."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from latewood.limits import MiB

T = TypeVar("T")

PARCEL_BYTES: Final = 32 * MiB
"""What one task reads, about: long enough that sending it costs nothing, short enough that none is waited for."""


def parcels(items: Iterable[T], weight: Callable[[T], int], weight_max: int) -> Iterator[tuple[T, ...]]:
    """Yield bundles of neighbours, as many as come to `weight_max` together; what is heavier goes alone."""
    bundle, total = list[T](), 0
    for item in items:
        heavy = weight(item)
        if bundle and total + heavy > weight_max:
            yield tuple(bundle)
            bundle, total = [], 0
        bundle.append(item)
        total += heavy
        if total >= weight_max:  # Whatever came next would not fit: do not wait for it.
            yield tuple(bundle)
            bundle, total = [], 0
    if bundle:
        yield tuple(bundle)
