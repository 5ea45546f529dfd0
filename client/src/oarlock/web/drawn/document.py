"""The document around everything: its head, and the theme that was chosen."""

from __future__ import annotations

from oarlock.report.markup import Attribute, Html, element
from oarlock.web.assets import asset

THEMES = ("system", "light", "dark")


def document(title: str, *body: Html, head: Html | None = None, theme: str = "system", **attributes: Attribute) -> str:
    """A whole page. `attributes` are the body's."""
    top = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark" if theme == "system" else theme),
        element("title", title),
        element("link", rel="icon", href=asset("oarlock.svg"), type="image/svg+xml"),
        element("link", rel="stylesheet", href=asset("report.css")),
        element("link", rel="stylesheet", href=asset("page.css")),
        head,
        element("script", src=asset("live.js"), defer=True),
        element("script", src=asset("reading.js"), defer=True),
        element("script", src=asset("keys.js"), defer=True),
    )
    chosen = theme if theme in THEMES[1:] else None
    return (
        f"<!doctype html>\n{element('html', top, element('body', *body, **attributes), lang='en', data_theme=chosen)}\n"
    )
