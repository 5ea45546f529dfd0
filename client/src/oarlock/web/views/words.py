"""What the words of the page mean. It asks the cluster for nothing."""

from __future__ import annotations

from oarlock.web.ask import Ask, Page, View
from oarlock.web.drawn.glossary import PATH, glossary


def draw(_: Ask) -> View:
    """All of them."""
    return glossary()


PAGES = (Page(path=PATH, draw=draw),)
