"""Draw the badges of the README from what the project says of itself: ``python docs/images/badges.py``.

Pictures of our own, so that no page that shows them asks a service, and a test can say whether they are true.
"""

from __future__ import annotations

import re
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent / "badges"
CHARACTER, MARGIN, HEIGHT = 6.6, 7, 20
LABEL, VALUE, TEXT = "#3d4350", "#2f6f4f", "#ffffff"


def badges() -> dict[str, str]:
    """Return each badge's file name and picture."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = project["classifiers"]
    [servers] = set(re.findall(r"PostgreSQL (\d+ or newer)", (ROOT / "pulse_django" / "checks.py").read_text()))
    return {
        "python.svg": drawn("Python", span(said, "Programming Language :: Python :: ")),
        "django.svg": drawn("Django", span(said, "Framework :: Django :: ")),
        "postgresql.svg": drawn("PostgreSQL", servers),
        "license.svg": drawn("license", project["license"]),
    }


def span(classifiers: list[str], prefix: str) -> str:
    """Return the first and the last version among classifiers, as in "3.11 to 3.14"."""
    versions = [one.removeprefix(prefix) for one in classifiers if one.startswith(prefix)]
    numbered = sorted((tuple(map(int, one.split("."))), one) for one in versions if "." in one)
    return f"{numbered[0][1]} to {numbered[-1][1]}"


def drawn(label: str, value: str) -> str:
    left, right = (round(len(text) * CHARACTER) + 2 * MARGIN for text in (label, value))
    name = escape(f"{label}: {value}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="{HEIGHT}" role="img"'
        f' aria-label="{name}">\n<title>{name}</title>\n'
        f'<rect width="{left + right}" height="{HEIGHT}" rx="3" fill="{VALUE}"/>\n'
        f'<path d="M3 0H{left}V{HEIGHT}H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z" fill="{LABEL}"/>\n'
        f'<g fill="{TEXT}" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">\n'
        f'<text x="{left / 2}" y="14">{escape(label)}</text>\n'
        f'<text x="{left + right / 2}" y="14">{escape(value)}</text>\n</g>\n</svg>\n'
    )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, picture in badges().items():
        (FOLDER / name).write_text(picture)
