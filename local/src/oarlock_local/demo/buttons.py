"""Faults on buttons, for a demo that stays: a small page of its own, beside the product's, which has no such thing.

It listens on 127.0.0.1 and answers to addresses that begin with a random key alone: neither other users of the machine nor
other sites in the browser know it.
"""

from __future__ import annotations

import html
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from oarlock_local.errors import LocalError

MOST_LINES = 30
_PAGE = """\
<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Break something</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta http-equiv="refresh" content="10">
<style>:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.55 system-ui, sans-serif; max-width: 40rem; margin: 2.5rem auto; padding: 0 1.5rem; }}
h1 {{ font-size: 1.4rem; }} form {{ display: flex; gap: 1rem; align-items: baseline; margin: .7rem 0; }}
button {{ font: inherit; padding: .3rem .9rem; min-width: 15rem; text-align: left; cursor: pointer; }}
span, li {{ overflow-wrap: anywhere; }} li {{ font-variant-numeric: tabular-nums; }} ul {{ padding-left: 1.2rem; }}
@media (max-width: 40rem) {{
body {{ margin: 1.2rem auto; padding: 0 1rem; }} form {{ display: block; margin: 1.2rem 0; }}
button {{ width: 100%; padding: .7rem .9rem; }} span {{ display: block; margin-top: .4rem; }} }}</style></head>
<body><main><h1>Break something</h1>
<p>These are real faults of the local cluster; only its GPUs are simulated. What Oarlock makes of them is on
<a href="{page}">the page</a>.</p>
{buttons}<h2>Done</h2><div role="log"><ul>{lines}</ul></div></main></body></html>
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"


@dataclass(frozen=True, slots=True)
class Button:
    """Something to press: what stands on it, whom it strikes now and what comes of it, and what it does, then in words.

    Both may raise LocalError, whose words are shown instead.
    """

    label: str
    tell: Callable[[], str]
    do: Callable[[], str]


@contextmanager
def buttons(known: Mapping[str, Button], *, page: str) -> Iterator[str]:
    """Serve the buttons, by the words of their addresses, for the length of the block; says the link."""
    key = secrets.token_urlsafe(24)
    lines: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == f"/{key}/":
                self._answer(200, _drawn(known, lines, page))
            else:
                self._answer(404, "open the link that the demo has printed")

        def do_POST(self) -> None:
            self.close_connection = True  # the body, which says nothing, is not read
            button = known.get(self.path.removeprefix(f"/{key}/"))
            if button is None:
                self._answer(404, "there is no such button")
                return
            try:
                words = button.do()
            except LocalError as error:
                words = f"not done: {button.label}: {error}"
            lines.insert(0, f"{datetime.now().astimezone():%H:%M:%S} {words}")
            del lines[MOST_LINES:]
            self.send_response(303)
            self.send_header("Location", f"/{key}/")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _answer(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Security-Policy", _POLICY)
            self.send_header("Referrer-Policy", "no-referrer")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Silence: the terminal tells the demo's story."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/{key}/"
        finally:
            server.shutdown()


def _drawn(known: Mapping[str, Button], lines: list[str], page: str) -> str:
    forms = "".join(
        f'<form method="post" action="{word}"><button>{html.escape(one.label)}</button>'
        f"<span>{html.escape(_told(one))}</span></form>\n"
        for word, one in known.items()
    )
    done = "".join(f"<li>{html.escape(line)}</li>" for line in lines) or "<li>nothing yet</li>"
    return _PAGE.format(buttons=forms, lines=done, page=html.escape(page))


def _told(button: Button) -> str:
    try:
        return button.tell()
    except LocalError as error:
        return str(error)
