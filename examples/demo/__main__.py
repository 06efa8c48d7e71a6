"""The pipeline end to end: events in, a kill -9, readers, a stream, tiers, SQL over all of it, and a picture.

    python -m examples.demo [--short] [--keep] [--output DIRECTORY]

A generator appends events to a store, is killed with -9 in mid-flight, and goes on; a reader follows it all the while.
Jobs move what is sealed into Parquet chunks, into an archive (a directory; an object store works the same) and off this
disk.  Spark adds the events up as they come, exactly once, into a second database, and then counts everything with SQL
over the one table.  What it finds is compared with what the generator was told is durable: exits 1 if that differs, or
if Spark does not start or fails; the rest of the story is told without it.

Needs some 200 MB in the temporary directory and removes what it put there, unless it is told to keep it.
"""

import argparse
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from examples.demo.story import FULL, SHORT, Outcome, Progress, Story, aligned
from latewood.cli.human import format_size
from latewood.cli.picture_look import look
from latewood.cli.picture_svg import draw


def report(outcome: Outcome) -> Iterator[str]:
    """Yield the result, line by line."""
    acknowledged, found = sum(outcome.acknowledged.values()), outcome.tally
    lost = acknowledged - sum(run.found for run in found.runs.values())
    slowest = max(run.opened_ms for run in outcome.runs.values())
    rows: list[tuple[str, int | str, str]] = [
        ("generator killed with -9", sum(run.was_killed for run in outcome.runs.values()), "time, in mid-flight"),
        ("slowest reopening", round(slowest), "ms"),
        ("acknowledged", acknowledged, "events"),
        ("lost", lost, ""),
        ("in the one table", found.events, f"with {found.events - acknowledged:,} not yet acknowledged at the kill"),
        ("read by billing", outcome.read, "each once, in order" if outcome.is_read_in_order else "NOT in order"),
    ]
    if outcome.totals:
        added = sum(page.events for page in outcome.totals.pages.values())
        note = f"exactly once, in {outcome.totals.batches} batches, {outcome.totals.replayed} of them done again"
        rows.append(("added up by the stream", added, note))
    for tier, chunks, size in outcome.tiers:
        where = "in chunks on this disk" if tier == "local" else "in the archive"
        rows.append((where, chunks, f"chunk{'' if chunks == 1 else 's'}, {format_size(size)}"))
    if outcome.missing is not None:
        rows.append(("Spark", "none", outcome.missing))
    yield from aligned(rows)
    yield ""
    yield from aligned([("page", "events", "cents"), *((page, *one) for page, one in sorted(found.pages.items()))])
    if outcome.segments:
        yield ""
        titles = ("database", "shard", "state", "segments", "records", "bytes")
        yield from aligned([titles, *outcome.segments])


def draw_lake(lake: Path, output: Path) -> Path:
    """Draw the store, as `latewood picture` does."""
    output.mkdir(parents=True, exist_ok=True)
    picture = output / "demo-lake.svg"
    picture.write_text(draw(look(lake, time.time_ns())), encoding="utf-8")
    return picture


def main() -> int:
    """Tell the story."""
    parser = argparse.ArgumentParser(prog="demo", description="The pipeline end to end, with a kill -9 and a picture.")
    parser.add_argument("--short", action="store_true", help="a tenth of the events")
    parser.add_argument("--keep", action="store_true", help="leave the store where it is, and say where")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where the picture goes")
    chosen = parser.parse_args()
    logging.getLogger("latewood").setLevel(logging.ERROR)  # It warns of tails that it cuts; here they are the story.
    progress = Progress()
    home = Path(tempfile.mkdtemp(prefix="latewood-demo-"))
    try:
        outcome = Story(home, SHORT if chosen.short else FULL, progress).tell()
        picture = draw_lake(home / "lake", chosen.output)
    finally:
        progress.show("")
        if not chosen.keep:
            shutil.rmtree(home)
    print("\n".join(report(outcome)))
    print(f"\npicture: {picture}" + (f"\nstore: {home / 'lake'}" if chosen.keep else ""))
    wrong = outcome.problems()
    for problem in wrong:
        print(f"WRONG: {problem}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
