"""Text that others wrote - messages, names, logs - made harmless: a terminal would obey control characters in it."""

from __future__ import annotations

import re

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""All but tab and newline, and what turns the direction of writing round."""


def escaped(text: str) -> str:
    r"""The text with its control characters as escapes, such as \x1b; tabs and newlines stay."""
    return CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def escaped_json(text: str) -> str:
    """A JSON text with the same characters as JSON's own escapes: it means the same."""
    return CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
