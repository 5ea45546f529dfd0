"""Words of the house: each is told in one place, and a heading that has one leads there."""

from __future__ import annotations

import json
from pathlib import Path

import gangs
import pytest
from fake_api import FakeApi
from pages import Page
from starlette.testclient import TestClient

from oarlock.explain import explain
from oarlock.glossary import WORDS, anchor, meaning
from oarlock.glossary_page import PATH, render
from oarlock.report.page import report
from oarlock.web.drawn.glossary import glossary
from oarlock.web.drawn.job import Choice
from oarlock.web.drawn.job import job as drawn_job
from oarlock_api.contract.node_marks import CORDONED

ASKED = ("attempt", "gang", "rank", "cordon", "stage", "goodput", "spare", "verdict", "preflight", "drill", "strike")


@pytest.mark.parametrize("word", ASKED)
def test_a_word_of_the_house_is_explained_at_an_address_of_its_own(page: TestClient, word: str) -> None:
    told = Page(page.get("/words").text)
    assert anchor(word) in [one.get("id") for one in told.all("tr")]
    assert meaning(word).split("`")[0].strip() in told.text


def test_the_documentation_has_the_same_words() -> None:
    text = PATH.read_text()
    assert render(text) == text
    assert all(f"| {word} | {said} |" in text for word, said in WORDS.items())
    links = [part.partition(")")[0] for said in WORDS.values() for part in said.split("](")[1:]]
    assert [one for one in links if not (Path(PATH).parent / one.partition("#")[0]).exists()] == []


def test_the_page_has_no_link_of_the_documentation_in_a_meaning() -> None:
    assert "](" not in glossary().body


def test_words_on_the_page_lead_to_their_meaning_which_the_pointer_and_a_screen_reader_have_at_once(
    api: FakeApi, page: TestClient
) -> None:
    api.objects["/api/v1/nodes/gpu-3"] = {
        "metadata": {"name": "gpu-3", "annotations": {CORDONED: json.dumps({"job": "team/flux"})}},
        "spec": {"unschedulable": True},
        "status": {"capacity": {"nvidia.com/gpu": "8"}},
    }
    known = gangs.gang()
    anchors = {one.get("id") for one in Page(page.get("/words").text).all("tr")} - {None}
    shown = set()
    for body in (drawn_job(explain(known), known, Choice()).body, page.get("/nodes").text):
        for link in [one for one in Page(body).all("a") if one.get("class") == "word"]:
            where, _, name = str(link["href"]).partition("#")
            assert (where, name in anchors) == ("/words", True)
            assert link["title"]
            shown.add(name)
    assert {"attempt", "goodput", "cordon", "stage", "gang", "strike", "brakes"} <= shown


def test_a_page_leads_to_all_words_and_a_report_that_is_a_file_to_none(page: TestClient) -> None:
    assert "/words" in [one["href"] for one in Page(page.get("/jobs").text).all("a")]
    assert "/words" not in report(gangs.gang())
