"""Every view in Chromium: in both themes, on a desk and on a phone, by keyboard, without scripts, and as axe hears it."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from oarlock_local.pytest_tiers import quick_first
from tests.page.conftest import Visitor
from tests.page.visit import Visit

pytestmark = pytest.mark.cluster
DOCUMENTED = {"job", "jobs"}
"""Views whose first screen the documentation shows: `make page-pictures`."""

VIEWS = {
    "jobs": "/jobs",
    "namespace": "/jobs/team-a?phase=Running",
    "job": "/jobs/team-a/flux-lora",
    "attempt": "/jobs/team-a/flux-lora?axis=time&attempt=2",
    "queued": "/jobs/team-a/portraits",
    "failed": "/jobs/team-a/typo",
    "logs": "/jobs/team-a/flux-lora/logs?pods=all",
    "pictures": "/jobs/team-a/flux-lora/pictures",
    "nodes": "/nodes",
    "words": "/words",
    "uncordon": "/nodes/gpu-node-03/uncordon",
    "suspend": "/jobs/team-a/flux-lora/suspend",
    "stop": "/jobs/team-a/flux-lora/stop",
}


@pytest.mark.parametrize("view", quick_first(VIEWS, 4))
def test_a_view_is_whole_in_both_themes_and_widths_for_eyes_and_ears_and_asks_nobody_else(
    view: str, visit: Visit, pictures: Path
) -> None:
    assert visit.to(VIEWS[view]) == 200
    for look in ("light", "dark", "phone"):
        visit.look(dark=look == "dark", phone=look == "phone")
        name = f"{view}-{look}"
        visit.picture(pictures / f"{name}.png")
        if view in DOCUMENTED:
            visit.picture(pictures / f"page-{name}.png", whole=False)
        if look != "phone":
            assert visit.findings() == []
    assert visit.sideways() <= 0
    assert visit.seen.complaints == []
    assert visit.seen.servers == {visit.origin}


@pytest.mark.parametrize("path", ["/jobs/team-a?text=flux", "/jobs/team-a/flux-lora"])
def test_a_phones_first_screen_says_phase_step_time_left_and_the_last_fault(path: str, visit: Visit) -> None:
    visit.look(phone=True)
    visit.to(path)
    for words in ("Running", "1,790", "7 h 1", "gpu-node-03"):
        expect(visit.page.locator("main").get_by_text(words).first).to_be_in_viewport()


def test_tables_fit_and_links_in_a_cell_stand_in_its_sentence_with_no_nodes_name_broken(visit: Visit) -> None:
    visit.look(phone=True)
    visit.to("/jobs/team-a/flux-lora")
    link = visit.page.locator("td[data-name='In words'] a").first
    expect(link).to_be_visible()
    offsets = "found => found.map(one => one.getBoundingClientRect().x - one.closest('td').getBoundingClientRect().x)"
    assert min(visit.page.locator("td[data-name] a").evaluate_all(offsets)) > 90
    for phone in (True, False):
        visit.look(phone=phone)
        lines = "found => found.map(one => one.getClientRects().length)"
        names = visit.page.get_by_role("link", name="gpu-node-", exact=False)
        assert set(names.evaluate_all(lines)) == {1}
        beyond = "found => found.map(one => one.scrollWidth - one.clientWidth)"
        assert max(visit.page.locator(".wide").evaluate_all(beyond)) <= 0


def test_no_jobs_name_is_broken_on_the_nodes_page(visit: Visit) -> None:
    visit.to("/nodes")
    names = visit.page.locator("td").get_by_role("link", name="team-a/flux-lora")
    expect(names.first).to_be_visible()
    tall = "found => found.map(one => one.offsetHeight / parseFloat(getComputedStyle(one).lineHeight))"
    assert max(names.evaluate_all(tall)) < 1.5, "lines"
    assert (
        max(visit.page.locator(".wide").evaluate_all("found => found.map(one => one.scrollWidth - one.clientWidth)"))
        <= 0
    )


def test_a_theme_that_is_chosen_stays_whatever_the_system_says(visit: Visit) -> None:
    visit.look(dark=False)
    background = "getComputedStyle(document.body).backgroundColor"
    light = visit.page.evaluate(background)
    with visit.page.expect_response("**/theme"):
        visit.page.get_by_role("button", name="dark").click()
    dark = visit.page.evaluate(background)
    assert dark != light
    visit.page.reload()
    assert visit.page.evaluate(background) == dark
    visit.look(dark=True)
    with visit.page.expect_response("**/theme"):
        visit.page.get_by_role("button", name="light").click()
    assert visit.page.evaluate(background) == light
    assert visit.seen.complaints == []


def test_a_filter_narrows_the_list_at_once_and_stands_in_the_address(visit: Visit) -> None:
    rows = visit.page.locator("tbody tr")
    expect(rows).not_to_have_count(1)
    visit.page.get_by_label("Find").press_sequentially("flux")
    expect(rows).to_have_count(1)
    expect(visit.page).to_have_url(f"{visit.origin}/jobs?text=flux")
    visit.page.reload()
    expect(rows).to_have_count(1)
    expect(visit.page.get_by_label("Find")).to_have_value("flux")


def test_without_scripts_the_views_are_there_and_the_filter_is_a_form(visitor: Visitor, link: str) -> None:
    visit = visitor(link, java_script_enabled=False)
    visit.to("/jobs")
    visit.page.get_by_label("Find").fill("portr")
    visit.page.get_by_label("Find").press("Enter")
    expect(visit.page.locator("tbody tr")).to_have_count(1)
    visit.page.get_by_role("link", name="portraits").click()
    expect(visit.page.get_by_text("24 GPUs of 32 are free").first).to_be_visible()
