"""All of a job can be reached and left by the keyboard alone, and one sees where one is."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.page.visit import Visit

pytestmark = pytest.mark.cluster

MOST = 200
"""Steps of the tab key through one page."""
ACTIVE = "document.activeElement"
SEEN = """() => {
  const style = getComputedStyle(document.activeElement);
  return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0 || style.boxShadow !== 'none'
    || document.activeElement.closest('svg') !== null;
}"""


def tab_to(visit: Visit, name: str) -> int:
    """Press the tab key until the link or button of this name has the focus; returns how often."""
    for pressed in range(1, MOST):
        visit.page.keyboard.press("Tab")
        words = visit.page.evaluate(f"{ACTIVE}.ariaLabel || {ACTIVE}.textContent")
        if words.strip().startswith(name):
            return pressed
    raise AssertionError(f"{name} cannot be reached by the tab key")


def test_from_the_list_through_a_job_to_an_action_and_back_by_keys_alone(visit: Visit) -> None:
    page = visit.page
    visit.to("/jobs/team-a")
    assert tab_to(visit, "Skip to the content") == 1
    page.keyboard.press("Enter")
    tab_to(visit, "flux-lora")
    assert page.evaluate(SEEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("flux-lora")
    assert tab_to(visit, "Skip to the content") == 1
    page.keyboard.press("Enter")
    for name in ("Suspend", "Timeline", "YAML", "The curve as a table"):
        tab_to(visit, name)
        assert page.evaluate(SEEN), name
    page.keyboard.press("Enter")
    expect(page.get_by_role("table").filter(has_text="Step").first).to_be_visible()
    tab_to(visit, "The job as it can be submitted")
    page.keyboard.press("Enter")
    expect(page.get_by_text("kind: TrainingJob")).to_be_visible()
    visit.to("/jobs/team-a/flux-lora")
    tab_to(visit, "Suspend")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Suspend flux-lora?")).to_be_visible()
    tab_to(visit, "Leave it as it is")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{visit.origin}/jobs/team-a/flux-lora")
    assert visit.seen.complaints == []
