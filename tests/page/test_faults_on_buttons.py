"""The demo's page of faults in Chromium: also on a phone beside the laptop that runs the demo."""

from __future__ import annotations

from pathlib import Path

import pytest

from oarlock_local.demo.buttons import Button, buttons
from tests.page.conftest import Visitor

pytestmark = pytest.mark.cluster
NODE = "a-rather-long-name-of-a-node-in-a-rack-of-a-hall"
TOLD = f"strikes GPU 1 of {NODE}, below pod default/flux-12-1 (XID 79): the gang ends within seconds"


def test_the_faults_stand_in_one_column_on_a_phone_with_nothing_beyond_its_edge(
    visitor: Visitor, pictures: Path
) -> None:
    kinds = ("A GPU falls off the bus", "A rank is killed", "Repair everything")
    known = {f"fault-{place}": Button(kind, lambda: TOLD, lambda: TOLD) for place, kind in enumerate(kinds)}
    with buttons(known, page="http://127.0.0.1:1/") as link:
        visit = visitor(link)
        with visit.page.expect_navigation():
            visit.page.get_by_role("button", name="Repair everything").click()
        for look in ("light", "dark", "phone"):
            visit.look(dark=look == "dark", phone=look == "phone")
            visit.picture(pictures / f"faults-{look}.png")
        assert visit.sideways() <= 0
        # It has no script, and is drawn anew every ten seconds: which axe would not have.
        assert [one for one in visit.findings() if not one.startswith("meta-refresh")] == []
        box = "getBoundingClientRect()"
        below = f"all => all.map(one => one.nextElementSibling.{box}.y - one.{box}.bottom)"
        assert min(visit.page.locator("button").evaluate_all(below)) >= 0
