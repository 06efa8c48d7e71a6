"""A writer that is killed with -9 again and again, and a reader that loses nothing.

A child process appends events durably, 100 at a time, and says so only once they are acknowledged.  It is killed in
mid-flight, several times, and started again.  Another process follows the log all the while as the reader `billing`.
At the end everything is counted, the segments that all readers have passed are retired, and a picture of the log
is drawn: segments as bars, readers as needles.

    python examples/demo.py [--short] [--output DIRECTORY]

Needs some 20 MB in the temporary directory and removes what it put there.  Exits 1 if anything was lost.
"""

import argparse
import hashlib
import json
import logging
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, NamedTuple
from xml.sax.saxutils import escape

import latewood

BATCH: Final = 100
SEGMENT_BYTES: Final = 512 * 1024
END: Final = b"end"
AUDITED: Final = 0.6
"""The share of the log that the second reader has read when the picture is drawn."""


class Acknowledged(NamedTuple):
    """Events that the writer was told are durable, before it was killed."""

    run: int
    first: int
    stop: int

    def sequences(self) -> range:
        """Return the sequences of these events."""
        return range(self.first, self.stop)


class Segment(NamedTuple):
    """What the picture needs to know of a segment."""

    segment_id: int
    start: int
    stop: int
    is_sealed: bool = True


class Needle(NamedTuple):
    """What the picture needs to know of a reader."""

    name: str
    sequence: int


class Result(NamedTuple):
    """What happened, in figures."""

    kills: list[int]
    """The sequence at which each run of the writer ended."""
    acknowledged: int
    lost: int
    written: int
    read: int
    is_read_exactly: bool
    segments: list[Segment]
    retired: list[int]
    needles: list[Needle]
    reopen_ms_max: float


# -- the processes ----------------------------------------------------------------------------------------


def event(run: int, sequence: int) -> bytes:
    """Return what the writer appends: anybody can tell what must stand at a sequence, given the run."""
    text = json.dumps({"run": run, "event": sequence, "item": f"item-{sequence * 7919 % 10_007}"})
    return text.ljust(96).encode()


def write(path: Path, run: int) -> None:
    """Append events for ever.  Prints how long opening took, then every batch once it is durable."""
    started = time.perf_counter()
    log = latewood.open(path, segment_bytes_max=SEGMENT_BYTES)
    print(f"{(time.perf_counter() - started) * 1000:.1f}", flush=True)
    while True:
        first = log.next_sequence
        sequences = log.append_many([event(run, first + number) for number in range(BATCH)], durable=True)
        print(sequences.start, sequences.stop, flush=True)


def read(path: Path) -> None:
    """Follow the log up to its end mark, and print what was read."""
    with latewood.open(path, mode="r") as log, log.reader("billing") as reader:
        digest, count, in_order = hashlib.sha256(), 0, True
        for record in reader.follow():
            in_order &= record.sequence == count
            count += 1
            digest.update(record.payload)
            if record.payload == END or count % 5000 == 0:
                reader.commit()
            if record.payload == END:
                break
    print(json.dumps({"read": count, "digest": digest.hexdigest(), "in_order": in_order}))


@contextmanager
def started(role: str, path: Path, run: int = 0) -> Iterator[subprocess.Popen[str]]:
    """Start this file as another process, which does not outlive the block."""
    command = [sys.executable, __file__, "--role", role, "--log", str(path), "--run", str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


# -- the story --------------------------------------------------------------------------------------------


def run_writer(path: Path, run: int, enough: int, chance: random.Random) -> tuple[list[Acknowledged], float]:
    """Let a writer run until it has acknowledged enough, kill it in mid-flight, and return all it acknowledged."""
    with started("writer", path, run) as writer:
        assert writer.stdout is not None
        reopen_ms = float(writer.stdout.readline())
        batches = []
        for batch in _batches(writer.stdout, run):
            batches.append(batch)
            if batch.stop - batches[0].first >= enough and writer.poll() is None:
                time.sleep(chance.random() * 0.003)
                writer.kill()
        return batches, reopen_ms


def _batches(lines: IO[str], run: int) -> Iterator[Acknowledged]:
    """Yield what a writer says, to its last whole line; the kill may have cut one."""
    for line in lines:
        if line.endswith("\n"):
            first, stop = line.split()
            yield Acknowledged(run, int(first), int(stop))


def tell_story(path: Path, runs: int, progress: "Progress") -> Result:
    """Run, kill, count, clean up."""
    chance = random.Random(42)
    latewood.open(path, segment_bytes_max=SEGMENT_BYTES).close()
    with started("reader", path) as reader:
        acknowledged: list[Acknowledged] = []
        kills, reopen_ms = [], []
        for run in range(runs):
            batches, opened_ms = run_writer(path, run, chance.randrange(4_000, 12_000), chance)
            acknowledged += batches
            kills.append(batches[-1].stop)
            reopen_ms.append(opened_ms)
            total = sum(len(batch.sequences()) for batch in acknowledged)
            progress.show(f"run {run + 1} of {runs}: the writer was killed, {total:,} events acknowledged so far")
        progress.show("counting")
        with latewood.open(path, segment_bytes_max=SEGMENT_BYTES) as log:
            log.append(END, durable=True)
            assert reader.stdout is not None
            told = json.loads(reader.stdout.read())
            return count_up(log, acknowledged, told, kills, max(reopen_ms))


def count_up(
    log: latewood.Queue, acknowledged: list[Acknowledged], told: dict[str, object], kills: list[int], reopen_ms: float
) -> Result:
    """Compare what was acknowledged, what is in the log and what was read; then retire what nobody needs."""
    payloads = [record.payload for record in log.scan()]
    expected = [(sequence, event(batch.run, sequence)) for batch in acknowledged for sequence in batch.sequences()]
    lost = sum(sequence >= len(payloads) or payloads[sequence] != payload for sequence, payload in expected)
    digest = hashlib.sha256(b"".join(payloads)).hexdigest()
    with log.reader("audit") as audit:
        audit.seek(sequence=int(len(payloads) * AUDITED))
        audit.commit()
    segments = segments_of(log)
    return Result(
        kills=kills,
        acknowledged=len(expected),
        lost=lost,
        written=len(payloads),
        read=int(str(told["read"])),
        is_read_exactly=told == {"read": len(payloads), "digest": digest, "in_order": True},
        segments=segments,
        retired=log.cleanup(),
        needles=[Needle(info.name, info.sequence) for info in log.readers()],
        reopen_ms_max=reopen_ms,
    )


def segments_of(log: latewood.Log) -> list[Segment]:
    """Return every segment of a log, oldest first."""
    manifest = log.view().manifest
    entries = [manifest.entries[index] for index in range(len(manifest.entries))]
    sealed = [Segment(entry.segment_id, entry.start_sequence, entry.end_sequence + 1) for entry in entries]
    return [*sealed, Segment(manifest.active.segment_id, manifest.active_base, log.next_sequence, is_sealed=False)]


def report(result: Result, picture: Path) -> str:
    """Return the result as text."""
    unacknowledged = result.written - 1 - result.acknowledged
    rows = [
        ("writer killed with -9", len(result.kills), "times, in mid-flight"),
        ("slowest reopening", f"{result.reopen_ms_max:.1f}", "ms"),
        ("acknowledged", result.acknowledged, "events"),
        ("lost", result.lost, ""),
        ("written in all", result.written, f"with {unacknowledged:,} not yet acknowledged at a kill, and an end mark"),
        ("read by billing", result.read, "each once, in order" if result.is_read_exactly else "NOT what was written"),
        ("segments rolled", len(result.segments) - 1, ""),
        ("retired by cleanup", len(result.retired), "segments that both readers have passed"),
    ]
    lines = [f"{name:<22} {value if isinstance(value, str) else f'{value:,}':>9}  {note}" for name, value, note in rows]
    return "\n".join(line.rstrip() for line in [*lines, f"{'picture':<22} {picture}"])


class Progress:
    """One line on stderr that is overwritten; nothing at all unless stderr is a terminal."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._is_shown:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


# -- the picture ------------------------------------------------------------------------------------------

WIDTH: Final = 1200
HEIGHT: Final = 400
LEFT: Final = 40
TOP: Final = 190
BAR: Final = 88
GAP: Final = 3
SEAL: Final = 5
EARLYWOOD, LATEWOOD, INK, FAINT, KILL = "url(#earlywood)", "#7a4a1e", "#33281d", "#9b8f80", "#c0392b"
GRAIN: Final = (
    '<linearGradient id="earlywood"><stop offset="0" stop-color="#f5e8cf"/><stop offset="1" stop-color="#dfc499"/>'
    "</linearGradient>"
)
NEEDLES: Final = ("#1f6f78", "#5b3f8c", "#2f7d32")


def draw(result: Result) -> str:
    """Return the log as an SVG: a light bar for each segment, with a dark band where it is sealed."""
    scale = (WIDTH - 2 * LEFT) / max(segment.stop for segment in result.segments)
    parts = [*_title(result), *_axis(result, scale)]
    for segment in result.segments:
        parts += _bar(segment, scale, is_retired=segment.segment_id in result.retired)
    for sequence in result.kills:
        parts += _kill(LEFT + sequence * scale)
    for number, needle in enumerate(sorted(result.needles, key=lambda one: one.sequence)):
        parts += _needle(needle, number, result.written, scale)
    parts += _legend()
    body = "\n".join(f"  {part}" for part in parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="Helvetica, Arial, sans-serif">\n{body}\n</svg>\n'
    )


def _text(x: float, y: float, text: str, size: int, colour: str = INK, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}"{more}>{escape(text)}</text>'


def _rectangle(x: float, y: float, width: float, height: float, fill: str, more: str = "") -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}" fill="{fill}"{more}/>'


def _title(result: Result) -> Iterator[str]:
    yield GRAIN
    yield _rectangle(0, 0, WIDTH, HEIGHT, "#fffdf9")
    yield _text(LEFT, 46, "A log, after its writer was killed", 24, more=' font-weight="bold"')
    facts = [
        f"{len(result.kills)} kills with -9",
        f"{result.acknowledged:,} events acknowledged",
        f"{result.lost} lost",
        f"{len(result.segments) - 1} segments sealed, {len(result.retired)} of them retired",
    ]
    yield _text(LEFT, 74, "  ·  ".join(facts), 15, FAINT)


def _bar(segment: Segment, scale: float, *, is_retired: bool) -> Iterator[str]:
    x, width = LEFT + segment.start * scale, (segment.stop - segment.start) * scale - GAP
    if is_retired:
        yield _rectangle(x, TOP, width, BAR, "none", f' stroke="{FAINT}" stroke-dasharray="4 4" opacity="0.7"')
    else:
        yield _rectangle(x, TOP, width, BAR, EARLYWOOD)
    if segment.is_sealed and not is_retired:
        yield _rectangle(x + width - SEAL, TOP, SEAL, BAR, LATEWOOD)
    if width > 22:
        colour = FAINT if is_retired else INK
        middle = x + (width - SEAL) / 2
        yield _text(middle, TOP + BAR / 2 + 5, str(segment.segment_id), 14, colour, ' text-anchor="middle"')


def _kill(x: float) -> Iterator[str]:
    y = TOP + BAR + 6
    yield f'<path d="M{x:.1f} {y} l-5 11 h4 l-2 10 l8 -13 h-5 l3 -8 z" fill="{KILL}"/>'


def _needle(needle: Needle, number: int, end: int, scale: float) -> Iterator[str]:
    x, colour = LEFT + needle.sequence * scale, NEEDLES[number % len(NEEDLES)]
    label_y = TOP - 62 + 26 * (number % 2)
    lag = end - needle.sequence
    side = "end" if x > WIDTH / 2 else "start"
    yield f'<path d="M{x:.1f} {label_y} V{TOP + BAR}" stroke="{colour}" stroke-width="2.5"/>'
    yield f'<circle cx="{x:.1f}" cy="{label_y}" r="6" fill="{colour}"/>'
    text = f"{needle.name}: has read everything" if lag == 0 else f"{needle.name}: {lag:,} behind"
    yield _text(x - 12 if side == "end" else x + 12, label_y + 5, text, 15, colour, f' text-anchor="{side}"')


def _axis(result: Result, scale: float) -> Iterator[str]:
    y = TOP + BAR + 34
    yield f'<path d="M{LEFT} {y} H{WIDTH - LEFT}" stroke="{FAINT}" stroke-width="1"/>'
    end = max(segment.stop for segment in result.segments)
    step = next(step for step in (1_000, 5_000, 10_000, 50_000, 100_000, 1_000_000_000) if end / step <= 12)
    for sequence in range(0, end, step):
        x = LEFT + sequence * scale
        yield f'<path d="M{x:.1f} {y} v6" stroke="{FAINT}" stroke-width="1"/>'
        anchor = ' text-anchor="middle"' if sequence else ""
        yield _text(x, y + 22, f"{sequence:,}" if sequence else "sequence 0", 12, FAINT, anchor)


def _legend() -> Iterator[str]:
    y = HEIGHT - 30
    yield _rectangle(LEFT, y - 14, 34, 18, EARLYWOOD)
    yield _rectangle(LEFT + 34 - SEAL, y - 14, SEAL, 18, LATEWOOD)
    yield _text(LEFT + 44, y, "sealed segment", 13)
    yield _rectangle(LEFT + 170, y - 14, 34, 18, EARLYWOOD)
    yield _text(LEFT + 214, y, "open segment", 13)
    yield _rectangle(LEFT + 330, y - 14, 34, 18, "none", f' stroke="{FAINT}" stroke-dasharray="4 4"')
    yield _text(LEFT + 374, y, "retired segment", 13)
    yield f'<path d="M{LEFT + 505} {y - 16} l-5 11 h4 l-2 10 l8 -13 h-5 l3 -8 z" fill="{KILL}"/>'
    yield _text(LEFT + 520, y, "writer killed", 13)
    yield f'<path d="M{LEFT + 640} {y - 10} V{y + 6}" stroke="{NEEDLES[0]}" stroke-width="2.5"/>'
    yield f'<circle cx="{LEFT + 640}" cy="{y - 12}" r="5" fill="{NEEDLES[0]}"/>'
    yield _text(LEFT + 652, y, "reader", 13)


# -- the command ------------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    """Return what was asked for; --role, --log and --run are for the children."""
    parser = argparse.ArgumentParser(description="Show a log surviving kill -9.")
    parser.add_argument("--short", action="store_true", help="two kills instead of eight")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where the picture goes")
    parser.add_argument("--role", choices=["story", "writer", "reader"], default="story", help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--run", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Tell the story, or play a part in it."""
    chosen = arguments()
    logging.getLogger("latewood").setLevel(logging.ERROR)  # It warns of tails that it cuts; here they are the story.
    if chosen.role == "writer":
        write(chosen.log, chosen.run)
    if chosen.role == "reader":
        read(chosen.log)
    if chosen.role != "story":
        return 0
    progress = Progress()
    directory = Path(tempfile.mkdtemp(prefix="latewood-demo-"))
    try:
        result = tell_story(directory / "events", 2 if chosen.short else 8, progress)
    finally:
        shutil.rmtree(directory)
        progress.show("")
    picture = chosen.output / "demo-log.svg"
    chosen.output.mkdir(parents=True, exist_ok=True)
    picture.write_text(draw(result))
    print(report(result, picture))
    return 0 if result.lost == 0 and result.is_read_exactly else 1


if __name__ == "__main__":
    sys.exit(main())
