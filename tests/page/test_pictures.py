"""Pictures of a mounted output in Chromium: what is chosen stands in the address, and a link shows the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import expect

from oarlock_api.contract.layout import OWNER, Owner
from oarlock_api.contract.pictures import FOLDER, INDEX
from tests.page.conftest import Visitor
from tests.page.played import KIND, Played
from tests.page.serving import laptop
from tests.page.visit import Visit

pytestmark = pytest.mark.cluster
PICTURES = "/jobs/team-a/flux-lora/pictures"
STEPS = (500, 1000, 1500)
NAMES = ("boat", "house")


@pytest.fixture
def visit(played: Played, visitor: Visitor, tmp_path: Path) -> Iterator[Visit]:
    """Somebody on whose machine the job's output is mounted."""
    output = tmp_path / "flux-lora"
    uid = played.api.get(f"{KIND.format('team-a')}/flux-lora")["metadata"]["uid"]
    (output / OWNER).parent.mkdir(parents=True)
    (output / OWNER).write_text(Owner(job_uid=uid, attempt=3).to_json())
    entries = []
    for step in STEPS:
        (output / FOLDER / f"step-{step}").mkdir(parents=True)
        for place, name in enumerate(NAMES):
            file = f"step-{step}/{name}-256x256.png"
            Image.new("RGB", (256, 256), (step // 8, 120, 90 + 100 * place)).save(output / FOLDER / file)
            about = {"width": 256, "height": 256, "seed": 42, "prompt": f"a {name} on a quiet lake"}
            entries.append({"step": step, "name": name, "file": file, "jobUid": uid, **about})
    (output / FOLDER / INDEX).write_text(json.dumps({"pictures": entries}))
    with laptop(played.cluster.kubeconfig, "--path", str(tmp_path)) as link:
        yield visitor(link)


def test_the_slider_moves_the_address_which_shows_the_same_step_to_others(visit: Visit, pictures: Path) -> None:
    page = visit.page
    visit.to(PICTURES)
    slider, number = page.get_by_role("slider"), page.locator("form output")
    expect(number).to_have_text("1,500")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    expect(page).to_have_url(f"{visit.origin}{PICTURES}?step=1000")
    expect(number).to_have_text("1,000")
    page.get_by_label("Beside").select_option("500")
    expect(page).to_have_url(f"{visit.origin}{PICTURES}?step=1000&beside=500")
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(f"{visit.origin}{PICTURES}?step=1500&beside=500")
    page.reload()
    expect(number).to_have_text("1,500")
    expect(page.locator("main figure")).to_have_count(4)
    for look in ("light", "dark", "phone"):
        visit.look(dark=look == "dark", phone=look == "phone")
        visit.picture(pictures / f"pictures-beside-{look}.png")
    assert visit.sideways() <= 0
    assert visit.seen.complaints == []


def test_number_and_address_follow_the_slider_before_the_server_has_answered(visit: Visit) -> None:
    page = visit.page
    visit.to(PICTURES)
    page.route("**/pictures?step=*", lambda _: None)
    page.get_by_role("slider").focus()
    page.keyboard.press("Home")
    expect(page.locator("form output")).to_have_text("500")
    expect(page).to_have_url(f"{visit.origin}{PICTURES}?step=500")
    page.unroute_all(behavior="ignoreErrors")
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_contain_text("flux-lora")
    expect(page.locator("form output")).to_have_text("500")
