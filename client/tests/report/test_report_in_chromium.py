"""The report as its reader sees it: opened by a double click, in light and in dark, on a screen and on a phone."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pages import hung, validation
from PIL import Image, ImageDraw
from situations import UID

from oarlock.report import find_gallery, report
from oarlock_local.chromium import watch

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

STEPS = (10, 20)
SCREEN, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 800}


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """An output with the pictures of two steps, and the page that its job writes."""
    folder = tmp_path / "flux"
    validation(folder, *STEPS, uid=UID)
    for path in folder.glob("validation/*/*.png"):
        picture = Image.new("RGB", (64, 64), "#336699")
        ImageDraw.Draw(picture).ellipse((16, 16, 48, 48), fill="#ffcc00")
        picture.save(path)
    page = folder / "reports/index.html"
    page.parent.mkdir()
    page.write_text(report(hung(), find_gallery(folder, job_uid=UID, page=page)))
    return page


def share(of: Locator, colour: str) -> float:
    """How much of what an element looks like has about this colour, such as rgb(37, 99, 168)."""
    wanted = [int(value) for value in re.findall(r"\d+", colour)[:3]]
    picture = Image.open(io.BytesIO(of.screenshot())).convert("RGB")
    found = picture.getcolors(picture.width * picture.height) or []
    near = [count for count, one in found if max(abs(a - b) for a, b in zip(one, wanted, strict=True)) < 12]
    return sum(near) / (picture.width * picture.height)


def style(of: Locator, name: str) -> str:
    found: str = of.evaluate("(element, name) => getComputedStyle(element)[name]", name)
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [SCREEN, PHONE], ids=["screen", "phone"])
def test_opened_by_a_double_click_it_shows_curve_timeline_and_pictures(
    browser: Browser, output: Path, scheme: str, viewport: dict[str, int]
) -> None:
    with browser.new_context(color_scheme=scheme, viewport=viewport) as context:  # type: ignore[arg-type]
        seen = watch(context)
        page = context.new_page()
        page.goto(output.as_uri())
        curve, timeline = page.locator(".by-step .chart").first, page.locator("section[aria-labelledby=timeline]")
        picture = page.locator(".frame:visible img").first
        line = page.locator(".by-step .line.loss").first
        assert share(curve, style(line, "stroke")) > 0.001
        assert share(timeline, style(page.locator("rect.train").first, "fill")) > 0.02
        assert share(timeline, style(page.locator(".fault").first, "fill")) > 0.0001
        assert share(picture, "rgb(255, 204, 0)") > 0.1
        paper = sum(int(value) for value in re.findall(r"\d+", style(page.locator("body"), "backgroundColor"))[:3])
        assert (paper > 600) == (scheme == "light")
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    assert seen.complaints == []
    assert seen.servers == set()


def test_the_slider_goes_through_the_steps_and_the_curve_can_be_drawn_over_time(browser: Browser, output: Path) -> None:
    with browser.new_context(viewport=SCREEN) as context:  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(output.as_uri())
        shown = page.locator(".frame:visible")
        assert shown.get_attribute("data-step") == "20"
        page.locator("#slider").press("Home")
        assert shown.get_attribute("data-step") == "10"
        assert page.locator("output").inner_text() == "10"
        shown.locator("img").first.wait_for()
        assert page.url == f"{output.as_uri()}#pictures-10"
        page.reload()
        assert shown.get_attribute("data-step") == "10"
        assert page.locator("#slider").input_value() == "0"
        assert page.locator(".by-step").is_visible()
        page.get_by_role("radio", name="over time").check()
        assert page.locator(".by-time").is_visible()
        assert not page.locator(".by-step").is_visible()


def test_a_page_that_lies_elsewhere_has_its_pictures_within(browser: Browser, output: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.html"
    alone.write_text(report(hung(), find_gallery(output.parents[1], job_uid=UID, page=alone)))
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(alone.as_uri())
        assert share(page.locator(".frame:visible img").first, "rgb(255, 204, 0)") > 0.1
