"""A terminal's lines as SVG, readable on a light and on a dark page."""

from __future__ import annotations

from xml.sax.saxutils import escape

CHARACTER_WIDTH, LINE_HEIGHT, MARGIN = 7.25, 17, 16
COLUMNS = 118
"""Longer lines end in dots."""

STYLE = """<style>
  text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #1b1f24; white-space: pre }
  .frame { fill: #f6f8fa; stroke: #8a939c }
  .note { font-weight: bold; fill: #8a3b16 }
  .bad { fill: #b5502b }
  .good { fill: #1a6b3c }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .frame { fill: #0d1117 }
    .note { fill: #f0a37f }
    .bad { fill: #e08a66 }
    .good { fill: #7ee0a1 }
  }
</style>"""

KINDS = {"Recovering": "bad", "Running": "good", "Succeeded": "good"}
"""Words that give their line a colour."""


def terminal(title: str, lines: list[str]) -> str:
    """The lines as a file's text. `title` is read to those who do not see it."""
    width = 2 * MARGIN + COLUMNS * CHARACTER_WIDTH
    height = 2 * MARGIN + LINE_HEIGHT * len(lines)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">',
            f"<title>{escape(title)}</title>",
            STYLE,
            f'<rect class="frame" x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="8"/>',
            *(_line(number, line) for number, line in enumerate(lines) if line),
            "</svg>\n",
        ]
    )


def _line(number: int, line: str) -> str:
    cut = line if len(line) <= COLUMNS else line[: COLUMNS - 3] + "..."
    is_note = line.startswith(" ") and line[1:2].isdigit()
    kind = "note" if is_note else next((kind for word, kind in KINDS.items() if word in line), "")
    named = f' class="{kind}"' if kind else ""
    y = MARGIN + LINE_HEIGHT * (number + 0.75)
    return f'<text{named} x="{MARGIN}" y="{y:g}" xml:space="preserve">{escape(cut)}</text>'
