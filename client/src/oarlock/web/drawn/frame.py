"""What stands around every view: header, navigation, theme, who asks, and whether the page is live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oarlock.report.markup import Html, element, joined
from oarlock.web.drawn.document import THEMES, document


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Whose page it is, and how it is seen. `live` is where its events come from, empty where there are none."""

    where: str
    who: str = ""
    tab: str = ""
    tabs: Sequence[tuple[str, str]] = ()
    """Name and address of each part of the page."""
    theme: str = "system"
    csrf: str = ""
    address: str = "/"
    live: str = ""
    state: str = ""
    trouble: str = ""
    can_leave: bool = False


def framed(frame: Frame, title: str, body: Html) -> str:
    """The whole page around a view's body."""
    return document(
        title,
        element("a", "Skip to the content", href="#content", class_="skip"),
        _header(frame),
        element("main", body, id="content", tabindex="-1"),
        _footer(frame),
        theme=frame.theme,
        data_live=frame.live or None,
        data_state=frame.state or None,
    )


def field(csrf: str) -> Html:
    """What every form of ours has."""
    return element("input", type="hidden", name="csrf", value=csrf)


def _header(frame: Frame) -> Html:
    links = [
        element("a", name, href=address, aria_current="page" if name == frame.tab else None)
        for name, address in frame.tabs
    ]
    return element(
        "header",
        element("a", "Oarlock", href="/", class_="home"),
        element("nav", *links, aria_label="Parts of the page"),
        element("p", frame.trouble, id="trouble", role="status", hidden=not frame.trouble),
        _theme(frame),
        _leave(frame),
        class_="top",
    )


def _theme(frame: Frame) -> Html:
    buttons = [
        element("button", name, name="theme", value=name, aria_pressed="true" if name == frame.theme else "false")
        for name in THEMES
    ]
    back = element("input", type="hidden", name="back", value=frame.address)
    return element(
        "form",
        back,
        *buttons,
        method="post",
        action="/theme",
        class_="theme",
        role="group",
        aria_label="Theme",
    )


def _leave(frame: Frame) -> Html | None:
    if not frame.can_leave:
        return None
    button = element("button", "Log out", title=frame.who or None)
    return element("form", field(frame.csrf), button, method="post", action="/logout", class_="leave")


def _footer(frame: Frame) -> Html:
    who = joined("As ", element("strong", frame.who), ", from ") if frame.who else "From "
    words = element("a", "What the words mean", href="/words")
    return element("footer", element("p", who, frame.where, ". ", words, "."), class_="dim")
