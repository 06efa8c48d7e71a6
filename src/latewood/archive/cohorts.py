"""Which cohorts a chunk's records are of: the `ext_id` of the segments that they came from.  Pure.

A chunk may have records of several segments, and so of several cohorts.  It notes where each begins, so that those of
one cohort can be told from the others whatever flushes and compactions have joined.
"""

from collections.abc import Iterable
from typing import TypeAlias

Cohorts: TypeAlias = tuple[tuple[int, int], ...]
"""First sequence and cohort of each stretch, in order; empty if no record is of any, or if that is unknown."""


def cohorts_within(starts: Iterable[tuple[int, int]], sequence_min: int, sequence_max: int) -> Cohorts:
    """Return the cohorts of a range of records.

    `starts` are where cohorts begin, in order, and the first of them begins at the range or before it.
    """
    found: list[tuple[int, int]] = []
    for sequence, cohort in starts:
        if sequence > sequence_max:
            break
        if sequence <= sequence_min:
            found = [(sequence_min, cohort)]
        elif not found or found[-1][1] != cohort:
            found.append((sequence, cohort))
    return tuple(found) if any(cohort for _, cohort in found) else ()


def are_cohorts_of(cohorts: Cohorts, sequence_min: int, sequence_max: int) -> bool:
    """Say whether these can be the cohorts of a range: the first begins with it, and the others follow in order."""
    if not cohorts:
        return True
    starts = [sequence for sequence, _ in cohorts]
    return starts[0] == sequence_min and starts == sorted(set(starts)) and starts[-1] <= sequence_max
