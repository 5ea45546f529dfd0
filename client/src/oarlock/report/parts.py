"""What sections are made of: their heading, tables, rows that can be linked to, and times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from oarlock.report.markup import Child, Html, element
from oarlock.report.words import DASH, when


def section(title: str, *children: Child, head: Child = None) -> Html:
    """A section with a heading that links can name; `head` is the title as it is drawn."""
    name = title.lower().replace(" ", "-")
    return element("section", element("h2", head or title, id=name), *children, aria_labelledby=name)


def table(names: Sequence[str], rows: Iterable[Html], heads: Mapping[str, Child] | None = None) -> Html:
    """A table of `row`s. On a phone each of its rows is a card, and its cells say their column's name.

    `heads` are names as they are drawn above their column.
    """
    drawn = heads or {}
    head = element("thead", element("tr", *(element("th", drawn.get(name, name), scope="col") for name in names)))
    return element("div", element("table", head, element("tbody", *rows)), class_="wide", tabindex="0")


def filled(names: Sequence[str], rows: Sequence[Sequence[Child]]) -> tuple[list[str], list[list[Child]]]:
    """The columns that say something in at least one row: one of dashes alone takes the place of others."""
    kept = [place for place in range(len(names)) if any(cells[place] not in (None, "", DASH) for cells in rows)]
    return [names[place] for place in kept], [[cells[place] for place in kept] for cells in rows]


def row(names: Sequence[str], cells: Sequence[Child], id: str | None = None) -> Html:  # noqa: A002 - as the attribute is called
    """A row of a table with these columns."""
    told = zip(names, cells, strict=True)
    return element("tr", *(element("td", cell, data_name=name) for name, cell in told), id=id)


def at(time: str) -> Child:
    """A time in UTC, to the second; a dash where it is not known."""
    told = when(time)
    return told if told == DASH else element("time", told, datetime=time)
