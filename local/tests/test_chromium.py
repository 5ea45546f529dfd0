"""Tests of pages see what no reader of a page sees, and say what to do where there is no browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from oarlock_local.chromium import program, watch
from oarlock_local.errors import MachineError

PAGE = """<!doctype html><meta http-equiv="Content-Security-Policy" content="script-src 'self'">
<script src="page.js"></script><script>document.title = "inline"</script>"""


def test_a_machine_without_a_browser_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="make browser"):
        program()


def test_errors_of_a_page_what_its_policy_refuses_and_whom_it_asks_are_noted(browser: Browser) -> None:
    answers = {
        "/": ("text/html", PAGE),
        "/page.js": ("text/javascript", "console.error('said'); fetch('http://b.test/'); throw new Error('thrown')"),
    }
    with browser.new_context() as context:
        seen = watch(context)
        page = context.new_page()
        page.route(
            "http://a.test/**",
            lambda route: route.fulfill(
                content_type=answers[route.request.url.removeprefix("http://a.test")][0],
                body=answers[route.request.url.removeprefix("http://a.test")][1],
            ),
        )
        page.route("http://b.test/", lambda route: route.abort())
        page.goto("http://a.test/")
        page.wait_for_load_state("networkidle")
        assert page.title() == ""
    assert seen.servers == {"http://a.test", "http://b.test"}
    for part in ("said", "thrown", "policy script-src-elem refuses inline"):
        assert any(part in complaint for complaint in seen.complaints), part
