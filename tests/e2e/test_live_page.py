"""The page of a gang that really trains, in Chromium: figures, logs and pictures as they come, and a fault as it happens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from oarlock_local.patience import eventually
from tests.e2e.jobs import SMALL, Jobs
from tests.page.conftest import pictures as pictures_folder
from tests.page.serving import laptop
from tests.page.visit import Visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]

JOB = "seen"
HERE = f"/jobs/default/{JOB}"
PROMPTS = [{"name": name, "prompt": f"{name} on a quiet lake"} for name in ("boat", "fox")]
VALIDATION = {"everySteps": 10, "prompts": PROMPTS, "resolutions": ["64x64"], "inferenceSteps": 2}
pictures = pictures_folder


@pytest.fixture(scope="module")
def link(jobs: Jobs) -> Iterator[str]:
    """`oarlock web`, with a gang of two that trains and draws."""
    jobs.apply(JOB, training={"validation": VALIDATION}, recovery={"backoffSeconds": 1}, **SMALL)
    with laptop(jobs.cluster.kubeconfig) as link:
        yield link
    jobs.delete(JOB)


@pytest.fixture
def visit(browser: Browser, link: str, jobs: Jobs) -> Iterator[Visit]:
    jobs.wait_for_checkpoint_of(JOB, 1)
    with Visit(browser, link) as visit:
        yield visit
        assert visit.seen.complaints == []
        assert visit.seen.servers == {visit.origin}


@pytest.mark.smoke("is seen on a page")
def test_figures_move_on_an_open_page(visit: Visit, pictures: Path) -> None:
    visit.to(HERE)
    visit.mark()
    step = visit.page.locator("dt:text-is('Step') + dd")
    expect(step).not_to_have_text(step.inner_text())
    assert not visit.reloaded
    visit.picture(pictures / "training-light.png")
    assert visit.findings() == []


def test_logs_of_all_pods_follow_in_words(visit: Visit, pictures: Path) -> None:
    visit.to(f"{HERE}/logs?pods=all")
    visit.mark()
    for pod in (0, 1):
        expect(visit.page.locator(".log .who", has_text=f"pod {pod}").first).to_be_visible()
    expect(
        visit.page.locator(".log p", has_text=re.compile(r"step \d+ of [\d,]+, loss .* s/step")).first
    ).to_be_visible()
    before = visit.page.locator(".log p").count()
    visit.page.wait_for_function("before => document.querySelectorAll('.log p').length > before", arg=before)
    assert not visit.reloaded
    visit.look(dark=True)
    visit.picture(pictures / "logs-of-all-dark.png")
    assert visit.findings() == []


def test_the_slider_leads_through_the_pictures_and_one_fills_the_window(visit: Visit, pictures: Path) -> None:
    slider = visit.page.get_by_role("slider")

    def leads_somewhere() -> bool:
        visit.to(f"{HERE}/pictures")
        return slider.count() > 0

    eventually(leads_somewhere, "pictures of a second step")
    image = visit.page.locator("main figure img").first
    shown = "image => image.complete && image.naturalWidth > 0"
    visit.page.wait_for_function(f"() => ({shown})(document.querySelector('main figure img'))")
    newest = image.get_attribute("src")
    slider.focus()
    visit.page.keyboard.press("Home")
    expect(image).not_to_have_attribute("src", newest or "")
    visit.page.wait_for_function(f"() => ({shown})(document.querySelector('main figure img'))")
    visit.picture(pictures / "gallery-light.png")
    assert visit.findings() == []
    visit.page.locator("main figure a").first.click()
    expect(visit.page.locator("figure.large img")).to_be_visible()
    assert visit.findings() == []
    visit.look(phone=True)
    assert visit.sideways() <= 0


def test_a_fault_and_the_way_back_from_it_come_to_the_open_page(jobs: Jobs, visit: Visit, pictures: Path) -> None:
    visit.to(HERE)
    visit.mark()
    expect(visit.page.locator("#part-faults")).not_to_contain_text("SIGKILL")
    jobs.signal_rank(f"{JOB}-1-1", 1, "KILL")
    expect(visit.page.locator("#part-faults")).to_contain_text("SIGKILL")
    jobs.wait_for_checkpoint_of(JOB, 2)
    expect(visit.page.locator("h1")).to_contain_text("Running")
    expect(visit.page.locator("#part-timeline")).to_contain_text("2")
    assert not visit.reloaded
    for dark in (False, True):
        visit.look(dark=dark)
        visit.picture(pictures / f"fault-{'dark' if dark else 'light'}.png")
    visit.look(phone=True)
    visit.picture(pictures / "fault-phone.png")
    assert visit.sideways() <= 0
