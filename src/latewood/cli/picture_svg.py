"""A picture of a log or a store as SVG text: bars of records, coloured by what holds them, readers above them.  Pure.

The oldest records are heartwood, dark, and the youngest are green.  Every part says on hovering what it is.
"""

from collections.abc import Iterator
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from latewood.cli.human import format_size, printable
from latewood.cli.picture_plan import (
    Bar,
    Kind,
    Label,
    Panel,
    Picture,
    Scale,
    Stretch,
    Total,
    flowed,
    label_text,
    labels,
    merged,
    portions,
    scale_of,
    shared_range,
    text_width,
    ticks,
    totals,
)

COLOURS: Final = {
    Kind.ARCHIVED: "#5e3c22",
    Kind.COPIED: "#9a6a3a",
    Kind.LOCAL: "#cfa05f",
    Kind.SEALED: "#ecdcb6",
    Kind.OPEN: "#7fae62",
}
NEEDLES: Final = ("#1f6f78", "#5b3f8c", "#b03a5b", "#2b5ea8", "#8a6d00", "#3a7d44")
PAPER, INK, FAINT, SEAL, ALARM = "#fffdf8", "#33281d", "#7d7163", "#7a4a1e", "#b3261e"

_WIDTH: Final = 1200
_MARGIN: Final = 40
_NAMES: Final = 90
"""The room for the names of shards, left of their bars."""
_BAR: Final = 40
_LABEL: Final = 12
_SMALL: Final = 11
_ROW: Final = 19
_LEGEND: Final = 12
_LEGEND_ROW: Final = 46
_PROBLEM_ROW: Final = 20
_CHIP: Final = 14
_GAP: Final = 1.5
_SEAL_MIN: Final = 8
"""A narrower segment is drawn without its seal."""
_SPLIT: Final = "Where a bar is split, the log below still has what the chunks above hold."
_TICKS_MAX: Final = 9
_NAME_MAX: Final = 64


def draw(picture: Picture) -> str:
    """Return the whole picture, as the text of an SVG file."""
    parts, y = [*_title(picture)], 96.0
    for panel in picture.panels:
        drawn, y = _panel(panel, y)
        parts += drawn
    if not picture.panels:
        parts.append(_text(_MARGIN, y + 20, "nothing is there", 15, FAINT))
        y += 40
    height = y + 8
    body = "\n".join(f"  {part}" for part in parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" '
        f'height="{height:.0f}" role="img" aria-label={quoteattr(printable(picture.title))} '
        f'font-family="Helvetica, Arial, sans-serif">\n'
        f"  <title>{escape(printable(picture.title))}</title>\n"
        f'  <rect width="{_WIDTH}" height="{height:.0f}" fill="{PAPER}"/>\n{body}\n</svg>\n'
    )


def _title(picture: Picture) -> Iterator[str]:
    yield _text(_MARGIN, 48, _short(picture.title), 25, INK, ' font-weight="bold"')
    yield _text(_MARGIN, 74, picture.subtitle, 14, FAINT)


def _panel(panel: Panel, y: float) -> tuple[list[str], float]:
    """Return a panel, and where the next may begin."""
    parts = [f'<path d="M{_MARGIN} {y:.1f} H{_WIDTH - _MARGIN}" stroke="{FAINT}" stroke-opacity="0.35"/>']
    parts.append(_text(_MARGIN, y + 30, _short(panel.name), 18, INK, ' font-weight="bold"'))
    legend, y = _legend(totals(panel.bars), y + 56)
    parts += legend
    for problem in panel.problems:
        parts.append(_text(_MARGIN, y, problem, _LEGEND, ALARM))
        y += _PROBLEM_ROW
    names = [needle for bar in panel.bars for needle in bar.needles]
    right = max((text_width(label_text(needle), _LABEL) for needle in names), default=0.0)
    left = _MARGIN + _NAMES
    scale = scale_of(panel.bars, left, _WIDTH - _MARGIN - left - max(right, 20))
    colours = {name: NEEDLES[at % len(NEEDLES)] for at, name in enumerate(sorted({one.name for one in names}))}
    for bar in panel.bars:
        drawn, y = _bar(bar, scale, y, colours)
        parts += drawn
    parts += _axis(scale, y)
    if any(start < stop for start, stop in (shared_range(bar.stretches) for bar in panel.bars)):
        parts.append(_text(scale.left, y + 40, _SPLIT, _LABEL, FAINT))
        y += 18
    return parts, y + 54


def _legend(found: list[Total], y: float) -> tuple[list[str], float]:
    """Return the colours, each with how much there is of it."""
    heads = [f"{one.kind.value}, {format_size(one.size_bytes)}" for one in found]
    lines = [_total(one) for one in found]
    widths = [
        _CHIP + 8 + max(text_width(head, _LEGEND), text_width(line, _SMALL))
        for head, line in zip(heads, lines, strict=True)
    ]
    places = flowed(widths, _WIDTH - 2 * _MARGIN)
    parts = []
    for one, head, line, (x, row) in zip(found, heads, lines, places, strict=True):
        left, at = _MARGIN + x, y + row * _LEGEND_ROW
        parts.append(_rectangle(left, at - 12, _CHIP, 31, COLOURS[one.kind], one.kind.value))
        if one.kind is Kind.SEALED:
            parts.append(_rectangle(left + _CHIP - 3, at - 12, 3, 31, SEAL, one.kind.value))
        parts.append(_text(left + _CHIP + 8, at, head, _LEGEND))
        parts.append(_text(left + _CHIP + 8, at + 17, line, _SMALL, FAINT))
    return parts, y + (places[-1][1] + 1 if places else 0) * _LEGEND_ROW


def _total(one: Total) -> str:
    what = ("chunk" if one.kind.is_chunk else "segment") + ("" if one.pieces == 1 else "s")
    return f"{one.pieces:,} {what}, {one.records:,} record{'' if one.records == 1 else 's'}"


def _bar(bar: Bar, scale: Scale, y: float, colours: dict[str, str]) -> tuple[list[str], float]:
    """Return a shard with its readers, and where the next may begin."""
    found = labels(bar.needles, scale, _LABEL)
    top = y + _ROW * (max((label.row for label in found), default=-1) + 1) + 8
    parts = [_text(_MARGIN, top + _BAR / 2 + 5, _short(bar.name), 14)]
    if not bar.stretches or bar.first == bar.stop:
        parts.append(_text(scale.left, top + _BAR / 2 + 5, "empty", 13, FAINT))
    shared = shared_range(bar.stretches)
    for stretch in merged(bar.stretches, scale):
        parts += _stretch(stretch, scale, top, shared)
    for label in found:
        parts += _needle(label, top, colours[label.needle.name])
    return parts, top + _BAR + 14


def _stretch(stretch: Stretch, scale: Scale, top: float, shared: tuple[int, int]) -> Iterator[str]:
    """Draw a chunk or a segment; where both have the same records, chunks are above and the log is below."""
    about = (
        f"{stretch.name}: {stretch.kind.value}, sequences {stretch.start:,} to {stretch.stop - 1:,}, "
        f"{format_size(stretch.size_bytes)}"
    )
    for portion in portions(stretch, shared):
        x, end = scale.x(portion.start), scale.x(portion.stop)
        is_last = portion.stop == stretch.stop
        gap = _GAP if is_last and stretch.pieces == 1 and end - x > 2 * _GAP else 0.0
        height = _BAR / 2 if portion.is_shared else _BAR
        y = top + (_BAR / 2 if portion.is_shared and not stretch.kind.is_chunk else 0)
        width = max(end - x - gap, 0.5)
        yield _rectangle(x, y, width, height, COLOURS[stretch.kind], about)
        if stretch.kind is Kind.SEALED and is_last and width > _SEAL_MIN:
            yield _rectangle(x + width - 3, y, 3, height, SEAL, about)


def _needle(label: Label, top: float, colour: str) -> Iterator[str]:
    y = top - 8 - _ROW * label.row
    yield (
        f'<path d="M{label.x:.1f} {y - 4:.1f} V{top + _BAR:.1f}" stroke="{colour}" stroke-width="2" fill="none">'
        f"<title>{escape(printable(f'{label.text}, at {label.needle.sequence:,}'))}</title></path>"
    )
    yield f'<circle cx="{label.x:.1f}" cy="{y - 4:.1f}" r="4" fill="{colour}"/>'
    yield _text(label.x + 9, y, label.text, _LABEL, colour)


def _axis(scale: Scale, y: float) -> Iterator[str]:
    if scale.first == scale.stop:
        return
    end = scale.x(scale.stop)
    yield f'<path d="M{scale.left:.1f} {y:.1f} H{end:.1f}" stroke="{FAINT}" fill="none"/>'
    yield _text(_MARGIN, y + 18, "sequence", 11, FAINT)
    for sequence in ticks(scale.first, scale.stop, _TICKS_MAX):
        x = scale.x(sequence)
        yield f'<path d="M{x:.1f} {y:.1f} v5" stroke="{FAINT}" fill="none"/>'
        yield _text(x, y + 18, f"{sequence:,}", 11, FAINT, ' text-anchor="middle"')


def _text(x: float, y: float, text: str, size: float, colour: str = INK, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}"{more}>{escape(printable(text))}</text>'


def _rectangle(x: float, y: float, width: float, height: float, fill: str, about: str) -> str:
    title = f"<title>{escape(printable(about))}</title>"
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}">{title}</rect>'


def _short(text: str) -> str:
    return text if len(text) <= _NAME_MAX else f"{text[: _NAME_MAX - 1]}…"
