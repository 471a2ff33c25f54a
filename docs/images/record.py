"""Draw what ``make demo`` prints as a terminal that plays it: an SVG that moves by itself, without any script.

    python manage.py pulse_demo | python docs/images/record.py docs/images/demo.svg

Lines appear at the times that the demo printed, and the picture begins anew when the last one has been seen.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

COLUMNS, ROWS = 118, 26
WIDTH, HEIGHT, MARGIN = 7.85, 18, 14  # of a character, of a line, around all
LAST = 6.0  # seconds that the end stays
SPEED = 2.0
BACKGROUND, TEXT, DIM = "#16181d", "#d6d9e0", "#8b93a3"
COLOURS = (
    (r"^(Act \d|The ledger|Nothing was lost)", "#ffffff"),
    (r"^ +✓", "#7ddc8b"),
    (r"^ +(kill -9|SIGSTOP)", "#ff8a80"),
    (r"DEAD_LETTERED|WORKER_LOST", "#ffb26b"),
    (r"^ +[\d.]+s ", TEXT),
)
_TIME = re.compile(r"^ +([\d.]+)s ")


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    at: float  # seconds from the beginning
    colour: str


def lines_of(said: Iterable[str]) -> list[Line]:
    """Give each line its time: its own, or that of the last one that has one."""
    found, now = [], 0.0
    for text in (line.rstrip("\n") for line in said):
        if stamp := _TIME.match(text):
            now = float(stamp[1])
        colour = next((colour for pattern, colour in COLOURS if re.search(pattern, text)), DIM)
        found += [Line(part, now, colour) for part in _folded(text)]
    return found


def drawn(lines: Sequence[Line]) -> str:
    """Return the picture."""
    takes = lines[-1].at / SPEED + LAST
    width, height = COLUMNS * WIDTH + 2 * MARGIN, ROWS * HEIGHT + 2 * MARGIN
    shares = [min(0.999, line.at / SPEED / takes) for line in lines]
    body = "\n".join(_text(number, line, shares[number], takes) for number, line in enumerate(lines))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img"
 font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="13">
<title>make demo: workers are killed, frozen and poisoned, and nothing is lost</title>
<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>
<clipPath id="screen"><rect x="0" y="{MARGIN - 4}" width="{width:.0f}" height="{ROWS * HEIGHT + 8}"/></clipPath>
<g clip-path="url(#screen)"><g xml:space="preserve">
{_scrolling(shares, takes)}
{body}
</g></g>
</svg>
"""


def _folded(text: str) -> list[str]:
    """Cut what is wider than the screen; nothing of importance stands at the end of a line of facts."""
    return [text if len(text) <= COLUMNS else f"{text[: COLUMNS - 1]}…"]


def _text(number: int, line: Line, share: float, takes: float) -> str:
    """One line, there from its time on."""
    y = MARGIN + (number + 1) * HEIGHT - 4
    appears = f'<animate attributeName="opacity" calcMode="discrete" values="0;1" keyTimes="0;{share:.4f}"'
    appears += f' dur="{takes:.2f}s" repeatCount="indefinite"/>'
    return f'<text x="{MARGIN}" y="{y}" fill="{line.colour}">{escape(line.text)}{appears if share else ""}</text>'


def _scrolling(shares: Sequence[float], takes: float) -> str:
    """Move all up as soon as the screen is full."""
    tops = {0.0: 0}
    for number, share in enumerate(shares):
        tops[round(share, 4)] = max(0, number + 1 - ROWS) * HEIGHT
    values = ";".join(f"0 {-top}" for top in tops.values())
    times = ";".join(f"{share:.4f}" for share in tops)
    return (
        f'<animateTransform attributeName="transform" type="translate" calcMode="discrete" values="{values}"'
        f' keyTimes="{times}" dur="{takes:.2f}s" repeatCount="indefinite"/>'
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(drawn(lines_of(sys.stdin)))
