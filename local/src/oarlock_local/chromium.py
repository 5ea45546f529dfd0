"""The machine's own Chromium for tests of pages, driven by Playwright, and what pages do in it that nobody sees.

Playwright comes with this workspace's `dev` group, and so is imported here alone, when a test asks for a browser.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from oarlock_local.errors import MachineError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
"""Debian's, others', and Chrome, which is the same browser under another name."""
_FLAGS = (
    "--no-sandbox",  # of a test's own pages, as root; Chromium's sandbox has none
    "--disable-gpu",
    # It asks for nothing by itself: what a test sees of requests is the page's.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)


def program() -> str:
    """The path of the machine's browser.

    Raises:
        MachineError: it has none.

    """
    for name in PROGRAMS:
        if found := shutil.which(name):
            return found
    raise MachineError(
        "tests of pages need Chromium, and this machine has none: run `make browser` as root on Debian, "
        f"or install a package that brings one of {', '.join(PROGRAMS)}"
    )


@contextmanager
def running() -> Iterator[Browser]:
    """A browser without a window; it dies with this process.

    Until it is closed, Playwright's event loop counts as running in this thread: no async test can run meanwhile.
    """
    from playwright.sync_api import sync_playwright

    path = program()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass(slots=True)
class Watched:
    """What all pages of a browser context have done so far."""

    complaints: list[str] = field(default_factory=list)
    """Errors on the console, exceptions that nothing caught, and what the page's content security policy refused."""
    servers: set[str] = field(default_factory=set)
    """Whom they have asked, as scheme://host:port; files and data: are nobody."""


_TELL_VIOLATIONS = """
document.addEventListener('securitypolicyviolation',
  event => console.error(`policy ${event.effectiveDirective} refuses ${event.blockedURI}`));
"""


def watch(context: BrowserContext) -> Watched:
    """Begin to note what the pages of a context do."""
    seen = Watched()

    def note(url: str) -> None:
        where = urlsplit(url)
        if where.netloc:
            seen.servers.add(f"{where.scheme}://{where.netloc}")

    context.add_init_script(_TELL_VIOLATIONS)
    context.on("console", lambda message: seen.complaints.append(message.text) if message.type == "error" else None)
    context.on("weberror", lambda error: seen.complaints.append(str(error.error)))
    context.on("request", lambda request: note(request.url))
    return seen
