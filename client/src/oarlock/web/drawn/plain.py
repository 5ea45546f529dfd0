"""Pages of a few words: errors, the way in, and from one address to the next."""

from __future__ import annotations

from starlette.responses import HTMLResponse

from oarlock.report.markup import Html, element, with_code
from oarlock.web.drawn.document import document


def notice(title: str, words: str, status: int = 200, *more: Html) -> HTMLResponse:
    """What is the matter and what to do, for whoever it is."""
    main = element("main", element("h1", title), element("p", with_code(words)), *more, class_="notice")
    return HTMLResponse(document(title, main), status)


def passing_on(address: str) -> HTMLResponse:
    """A page that goes on to another one of ours by itself.

    Where one has come from another site, his cookies are not sent along, nor are they with a redirect; from a page of ours
    they are.
    """
    link = element("p", element("a", "Go on", href=address))
    main = element("main", link, class_="notice")
    refresh = element("meta", http_equiv="refresh", content=f"0;url={address}")
    return HTMLResponse(document("Oarlock", main, head=refresh))
