"""What changes in the cluster changes on open pages, without a reload, and leaves alone what the viewer is busy with."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.page.played import Played, ago, progress
from tests.page.visit import Visit

pytestmark = pytest.mark.cluster

FAULT = {
    "time": "", "class": "PeerLost", "nodeName": "gpu-node-02", "rank": 1, "victims": 3, "verdict": "RestartProcess",
    "action": "attempt 4", "evidence": ["rank 9 was killed by SIGBUS"],
}  # fmt: skip


def test_a_fault_and_new_jobs_come_to_an_open_list_and_the_focus_stays_where_it_is(
    played: Played, visit: Visit
) -> None:
    visit.to("/jobs/team-a")
    visit.mark()
    link = visit.page.get_by_role("link", name="styles")
    link.focus()
    played.tell("team-a", "styles", phase="Recovering", summary={"lastFault": "rank 9 was killed by SIGBUS"})
    played.job("team-a", "newcomer", phase="Pending")
    expect(visit.page.get_by_text("killed by SIGBUS")).to_be_visible()
    expect(visit.page.get_by_role("link", name="newcomer")).to_be_visible()
    expect(link).to_be_focused()
    played.api.delete("/apis/oarlock.dev/v1alpha1/namespaces/team-a/trainingjobs/newcomer")
    expect(visit.page.get_by_role("link", name="newcomer")).to_have_count(0)
    assert not visit.reloaded
    assert visit.seen.complaints == []


def test_a_fault_comes_to_an_open_job_with_what_is_done_about_it(played: Played, visit: Visit) -> None:
    visit.to("/jobs/team-a/styles")
    visit.mark()
    expect(visit.page.get_by_text("killed by SIGTERM")).to_have_count(0)
    words = "rank 9 was killed by SIGTERM"
    played.tell("team-a", "styles", phase="Recovering", lastFault={**FAULT, "time": ago(0), "evidence": [words]})
    expect(visit.page.get_by_text("killed by SIGTERM").first).to_be_visible()
    played.tell("team-a", "styles", phase="Running", progress=progress(1234))
    expect(visit.page.get_by_text("1,234").first).to_be_visible()
    expect(visit.page).to_have_title("styles: Running, step 1,234 of 4,000")
    assert not visit.reloaded
    assert visit.seen.complaints == []
