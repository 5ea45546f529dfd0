"""Sentences that go over the link: short, and harmless wherever they are shown."""

from __future__ import annotations

MAX_WHY = 300


def plain(words: str) -> str:
    """Words in one line of at most MAX_WHY characters, without control characters."""
    printable = "".join(character if character.isprintable() else " " for character in words[: 4 * MAX_WHY])
    return " ".join(printable.split())[:MAX_WHY].rstrip()
