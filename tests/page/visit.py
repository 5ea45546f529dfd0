"""Somebody who looks at the page in a browser of his own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, ViewportSize, expect

from oarlock_local import patience
from oarlock_local.chromium import watch

DESK, PHONE = ViewportSize(width=1280, height=900), ViewportSize(width=390, height=844)
_AXE = {"resultTypes": ["violations"]}


class Visit:
    """One browser context with one page. Opens the address that it is given; `options` are the context's."""

    def __init__(self, browser: Browser, address: str, **options: Any) -> None:
        at = urlsplit(address)
        self.origin = f"{at.scheme}://{at.netloc}"
        self._context = browser.new_context(**{"viewport": DESK, "timezone_id": "UTC", **options})
        self._context.set_default_timeout(patience.SECONDS * 1000)
        expect.set_options(timeout=patience.SECONDS * 1000)
        self.seen = watch(self._context)
        self.page: Page = self._context.new_page()
        self.page.goto(address)
        # The link passes on to the jobs by itself.
        self.page.wait_for_url(lambda url: "/enter" not in url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()

    def to(self, path: str) -> int:
        """Go to a path of the page; returns the answer's status."""
        answer = self.page.goto(f"{self.origin}{path}")
        assert answer
        return answer.status

    def look(self, *, dark: bool = False, phone: bool = False) -> None:
        """Look with this theme of the system and this window."""
        self.page.emulate_media(color_scheme="dark" if dark else "light")
        self.page.set_viewport_size(PHONE if phone else DESK)

    def findings(self) -> list[str]:
        """What axe finds that is serious or worse: rule, and the first element that breaks it."""
        found = Axe().run(self.page, options=_AXE).response["violations"]
        return [
            f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]} ({len(one['nodes'])} in all)"
            for one in found
            if one["impact"] in {"serious", "critical"}
        ]

    def sideways(self) -> int:
        """Pixels by which the page is wider than its window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Keep what is seen."""
        self.page.screenshot(path=path, full_page=whole, animations="disabled")

    def mark(self) -> None:
        """Note that this document is the one that is open."""
        self.page.evaluate("window.opened = true")

    @property
    def reloaded(self) -> bool:
        """Whether another document is open than when it was marked."""
        return self.page.evaluate("window.opened") is not True
