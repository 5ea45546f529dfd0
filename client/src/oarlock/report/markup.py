"""Elements of HTML and SVG. Every text becomes markup here, and here alone is it escaped: what a job says stays text.

element("p", "step ", 7, class_="dim")  ->  <p class="dim">step 7</p>
"""

from __future__ import annotations

import html
import re

_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, those that turn the direction of what stands beside them, and what UTF-8 cannot write."""
_VOID = {"meta", "link", "input", "img", "br"}


class Html(str):
    """Markup. Any other string is text, and is escaped where it becomes part of markup."""

    __slots__ = ()


Child = str | float | None
Attribute = str | float | None


def element(tag: str, /, *children: Child, **attributes: Attribute) -> Html:
    """An element. `class_` is class, `aria_label` aria-label; what is None or False is left out, and True is bare.

    Numbers have at most two decimals: they are places in a drawing.
    """
    told = "".join(_attribute(key, value) for key, value in attributes.items())
    if tag in _VOID:
        return Html(f"<{tag}{told}>")
    return Html(f"<{tag}{told}>{joined(*children)}</{tag}>")


def joined(*children: Child) -> Html:
    """One after the other."""
    return Html("".join(_text(child) for child in children if child is not None))


def with_code(text: str) -> Html:
    """A sentence in which commands stand between backticks."""
    parts = text.split("`")
    return joined(*(element("code", part) if place % 2 else part for place, part in enumerate(parts)))


def cut(text: str, most: int) -> str:
    """At most so many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"


def _attribute(key: str, value: Attribute) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{_text(value)}"'


def _text(child: str | float) -> str:
    if isinstance(child, Html):
        return child
    if isinstance(child, float):
        return f"{child:.2f}".rstrip("0").rstrip(".")
    return html.escape(_UNSEEN.sub("\ufffd", str(child)))
