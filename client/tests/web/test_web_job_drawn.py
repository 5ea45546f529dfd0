"""The page of a job as it is drawn: each thing can be found, is linked, is bounded, and stays text."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import Any

import gangs
import pytest
from pages import Page
from situations import SITUATIONS, UID, condition, facts, job, node
from test_report_page import EVIL

from oarlock.explain import explain
from oarlock.facts import Facts
from oarlock.report.curves import Axis
from oarlock.report.links import Links, xids_of
from oarlock.report.links import nodes_of as nodes_of_story
from oarlock.report.tables import cordons
from oarlock.rows import job_row
from oarlock.web.drawn.gpus import gpus
from oarlock.web.drawn.health import Health, nodes_of
from oarlock.web.drawn.job import Choice
from oarlock.web.drawn.job import job as drawn_job
from oarlock.web.drawn.links import PageLinks
from oarlock_api.contract.asked_by import AskedBy

OURS = re.compile(
    r"/jobs/team/flux/(logs(\?[\w=&%-]+)?|pictures|curve)|/words#[\w-]+|/nodes(\?namespace=team)?(#node-[\w.-]+)?|(/jobs/team/flux\?[\w=&]*)?#[\w-]+"
)


def drawn(known: Facts, choice: Choice = Choice()) -> Page:  # noqa: B008 - it is frozen
    return Page(drawn_job(explain(known), known, choice).body)


def running(**status: Any) -> Facts:
    attempts = [{"number": 1, "startTime": "2026-11-23T10:00:00Z", "nodeNames": ["node-1", "node-2"]}]
    return facts(job("Running", **{"attempts": attempts, **status}))


def test_the_first_screen_says_how_it_stands() -> None:
    body = drawn_job(explain(gangs.gang()), gangs.gang(), Choice()).body
    page = Page(re.sub('<a [^>]*class="word"[^>]*>([^<]*)</a>', r"\1", body))
    told = dict(zip(page.texts["dt"], page.texts["dd"], strict=True))
    assert page.texts["h1"] == ["team/flux-lora"]
    assert (told["Step"], told["Time left"], told["Last fault"], told["Goodput"]) == (
        "1,790",
        "7 h 18 min",
        "GPUFault",
        "96.9%",
    )
    assert drawn_job(explain(gangs.gang()), gangs.gang(), Choice()).title == "flux-lora: Running, step 1,790 of 4,000"


def test_each_part_is_an_element_that_can_be_drawn_alone() -> None:
    view = drawn_job(explain(gangs.gang()), gangs.gang(), Choice())
    (region,) = view.regions
    for name, markup in region.children.items():
        (tag, attributes), *_ = Page(markup).tags
        assert (tag, attributes["id"]) == ("div", name)


def test_all_links_within_the_page_lead_somewhere_and_no_name_is_given_twice() -> None:
    for choice in (Choice(), Choice(attempt=2), Choice(axis=Axis.TIME)):
        page = drawn(gangs.gang(), choice)
        names = [one["id"] for _, one in page.tags if one.get("id")]
        assert len(names) == len(set(names))
        links = [str(one["href"]) for one in page.all("a")]
        targets = {one.partition("#")[2] for one in links if "#" in one and not one.startswith(("/nodes", "/words"))}
        assert targets <= set(names)


def test_a_pod_is_called_a_pod_and_a_rank_is_a_process_of_it() -> None:
    known = gangs.gang()
    story = explain(known)
    root = replace(story.attempts[1].faults[0], first_rank=21)
    told = replace(story, attempts=(replace(story.attempts[1], faults=(root,)),))
    page = Page(drawn_job(told, known, Choice()).body)
    assert ", pod 2, rank 21, GPU 5, GPU-5f7a1c90-2b, XID 79 " in page.texts["td"]
    assert "pod 2" in page.texts["span"], "of a node"
    assert any("attempt 2, pod 2 on gpu-node-03" in words for words in page.texts["title"])


def test_each_attempt_and_each_fault_leads_to_its_log() -> None:
    page = drawn(gangs.gang())
    links = {str(one["href"]) for one in page.all("a") if "/logs?" in str(one["href"])}
    where = "/jobs/team/flux-lora/logs?"
    assert {f"{where}attempt={number}" for number in (1, 2, 3)} <= links
    # The GPU fault was at 07:34:12: its log is shown until a minute later.
    assert f"{where}pods=2&attempt=2&until=2026-11-23T07%3A35%3A12Z" in links
    alone = drawn(gangs.gang(), Choice(attempt=2))
    victims = [
        str(one["href"]) for one in alone.all("a") if "attempt=2&until=2026-11-23T07%3A35%3A18Z" in str(one["href"])
    ]
    assert len(victims) == 3, "where one attempt is shown, those of its victims, too"


def test_what_is_chosen_stands_in_every_link() -> None:
    page = drawn(gangs.gang(), Choice(axis=Axis.TIME, attempt=2))
    links = {str(one["href"]) for one in page.all("a")}
    assert "/jobs/team/flux-lora?axis=time&attempt=3#timeline" in links, "its neighbour"
    assert "/jobs/team/flux-lora?axis=time#timeline" in links, "back to all"
    assert "/jobs/team/flux-lora?attempt=2#curve" in links, "over steps"


@pytest.mark.parametrize(
    ("axis", "attempt", "wanted"),
    [
        ("", "", Choice()),
        ("time", "3", Choice(Axis.TIME, 3)),
        ("x", "-1", Choice()),
        ("time", "9" * 30, Choice(Axis.TIME)),
    ],
)
def test_what_cannot_be_meant_is_not_chosen(axis: str, attempt: str, wanted: Choice) -> None:
    assert Choice.of(axis=axis, attempt=attempt) == wanted


def test_an_attempt_that_was_never_made_is_said_to_be_unknown() -> None:
    assert "Attempt 77 is not known." in drawn(gangs.gang(), Choice(attempt=77)).text


def test_curves_have_their_figures_for_the_pointer() -> None:
    (loss, pace) = [one["data-points"] for one in drawn(gangs.gang()).all("svg") if one.get("data-points")]
    assert str(loss).startswith("[[0.0,")
    assert '"step 1, 2026-11-23 04:02:00: ' in str(loss)
    assert str(pace).endswith(' s"]]')


def test_a_gpu_that_something_speaks_against_has_a_sign_beside_its_colour_and_words() -> None:
    page = Page(gpus(nodes_of(gangs.gang(), explain(gangs.gang()))))
    classes = [str(one.get("class")) for one in page.all("path")]
    assert "gpu faulty" in classes
    assert "sign on" in classes
    assert "gpu open struck" in classes, "one of which only the UUID is known"
    assert "cordoned" in page.texts["span"]
    assert any("GPU 5: XID 79: GPU 5 has fallen off the bus" in one for one in page.texts["title"])
    assert "GPU-0c44" in page.texts["td"]
    assert "something speaks against 1 of the nodes. 1 more is kept off" in page.text


def test_what_is_said_of_an_xid_stands_once_in_full_and_elsewhere_by_its_name_with_a_link() -> None:
    def shown(known: Facts, choice: Choice) -> tuple[int, int]:
        body = drawn_job(explain(known), known, choice).body
        seen = unescape(re.sub("<title>[^<]*</title>|<[^>]*>", "", body.replace("</td>", " ")))
        return seen.count(gangs.XID), len(re.findall(r'<a href="#fault-2">XID 79( on gpu-node-03)?</a>', body))

    known = gangs.gang()
    in_full, named = shown(known, Choice())
    assert in_full == 1
    assert named >= 3, "what speaks against its GPU, the cordon, what happened"
    assert shown(known, Choice(attempt=1))[1] == 0, "its row is not there to lead to"
    same = gangs.large()
    assert xids_of(explain(same), explain(same).attempts) == {}, "words of many faults lead to none of them"


def test_nothing_speaks_against_nodes_of_which_nobody_says_anything() -> None:
    found = nodes_of(running(), explain(running()))
    assert [(one.name, one.here, one.rank, one.health) for one in found] == [
        ("node-1", True, None, Health.WELL),
        ("node-2", True, None, Health.WELL),
    ], "the status has names without ranks"
    assert "16 GPUs on 2 nodes: nothing speaks against any of them." in Page(gpus(found)).text


def test_a_program_that_failed_says_nothing_against_the_node_it_ran_on() -> None:
    fault = {
        "time": "2026-11-23T10:30:00Z",
        "class": "Application",
        "nodeName": "node-1",
        "evidence": ["rank 0: KeyError"],
    }
    known = running(lastFault=fault)
    assert all(one.health is Health.WELL for one in nodes_of(known, explain(known)))


def test_what_a_node_says_of_itself_counts() -> None:
    off = {
        **node("node-1"),
        "status": {"conditions": [condition("Ready", "False", "KubeletNotReady", "PLEG is not healthy")]},
    }
    known = replace(running(), nodes=(off, node("node-2", cordoned=True)))
    found = nodes_of(known, explain(known))
    assert [one.health for one in found] == [Health.NOT_READY, Health.CORDONED]
    assert [one.against[0].words for one in found] == ["not ready: PLEG is not healthy", "cordoned, and not by Oarlock"]


GIVEN = {"oarlock.dev/given-back": gangs.time(300)}
ASKED = {"oarlock.dev/asked-by": AskedBy(action="Uncordon", by="bob <b>", time=gangs.time(300)).to_annotation()}


@pytest.mark.parametrize(
    ("annotations", "cordoned", "said"),
    [
        (GIVEN | ASKED, False, f"{gangs.time(300)[:19].replace('T', ' ')} by bob <b>"),
        (GIVEN, False, gangs.time(300)[:19].replace("T", " ")),
        ({}, False, "yes"),
        ({"oarlock.dev/given-back": gangs.time(10)}, False, "yes"),
        ({}, True, "not yet"),
    ],
    ids=["page", "shell", "kubectl", "before", "stands"],
)
def test_a_node_that_was_given_back_is_not_cordoned_any_more_and_says_by_whom(
    annotations: dict[str, str], said: str, *, cordoned: bool
) -> None:
    off = node("gpu-node-03", cordoned=cordoned)
    off["metadata"]["annotations"] = annotations
    known = replace(gangs.gang(), nodes=(off,))
    (found,) = [one for one in nodes_of(known, explain(known)) if one.name == "gpu-node-03"] or [None]
    shown = {one.health for one in found.against} if found else set()
    assert (Health.CORDONED in shown, Health.FAULTY in shown) == (cordoned, cordoned)
    assert said in unescape(re.sub("<[^>]*>", "", cordons(explain(known).cordons) or ""))


def actionable(known: Facts) -> Page:
    """As it is drawn where actions are on."""
    assert known.job
    return Page(drawn_job(explain(known), known, Choice(), row=job_row(known.job)).body)


def test_advice_is_a_button_where_the_page_can_do_it_and_a_whole_command_where_it_cannot() -> None:
    known = replace(gangs.gang(), nodes=(node("gpu-node-03", cordoned=True),))
    assert "/nodes/gpu-node-03/uncordon?namespace=team" in [one["href"] for one in actionable(known).all("a")]
    assert "oarlock uncordon gpu-node-03" not in actionable(known).texts["code"]
    assert "/nodes/gpu-node-03/uncordon?namespace=team" not in [one["href"] for one in drawn(known).all("a")]
    assert "oarlock uncordon gpu-node-03" in drawn(known).texts["code"]


@pytest.mark.parametrize("cordoned", [True, False])
def test_a_node_is_uncordoned_where_it_is_cordoned_and_used_again_where_jobs_only_avoid_it(*, cordoned: bool) -> None:
    avoided = [{"name": "gpu-node-03", "reason": "GPU fault", "sinceTime": gangs.time(10), "strict": True}]
    known = gangs.gang()
    assert known.job
    status = {**known.job["status"], "avoidedNodes": avoided, "cordonedNodes": []}
    page = actionable(
        replace(known, job={**known.job, "status": status}, nodes=(node("gpu-node-03", cordoned=cordoned),))
    )
    said = "Uncordon gpu-node-03\u2026" if cordoned else "Use gpu-node-03 again\u2026"
    assert {one for one in page.texts["a"] if "gpu-node-03" in one and "\u2026" in one} == {said}


def test_advice_of_an_old_fault_does_not_ask_to_uncordon_what_takes_pods_again() -> None:
    known = gangs.gang()
    assert known.job
    status = {**known.job["status"], "avoidedNodes": []}
    mended = replace(known, job={**known.job, "status": status}, nodes=(node("gpu-node-03"),))
    page = actionable(mended)
    assert "/nodes/gpu-node-03/uncordon?namespace=team" not in [one["href"] for one in page.all("a")]
    assert "uncordon gpu-node-03 (done: it takes pods)" in page.texts["span"]


def test_advice_to_go_on_is_the_button_that_fits() -> None:
    held = facts({**job("Suspended"), "spec": {"suspend": True}})
    assert "/jobs/team/flux/resume" in [
        one["href"] for one in actionable(held).all("a") if one.get("class") == "button"
    ]
    assert "oarlock resume flux -n team" in drawn(held).texts["code"]


def test_advice_to_read_the_last_words_leads_to_the_log_of_that_attempt() -> None:
    ended = [
        {"number": 1, "startTime": "2026-11-23T10:00:00Z", "endTime": "2026-11-23T10:30:00Z", "endReason": "Failed"}
    ]
    fault = {"time": "2026-11-23T10:30:00Z", "class": "Application", "nodeName": "node-1", "evidence": ["KeyError"]}
    known = running(attempts=ended, lastFault=fault, attempt=1)
    assert "/jobs/team/flux/logs?attempt=1" in [one["href"] for one in drawn(known).all("a")]


def test_a_node_is_a_link_wherever_it_is_named_and_a_word_of_the_sentence_is_none() -> None:
    page = drawn(gangs.gang())
    links = [one["href"] for one in page.all("a")]
    assert links.count("/nodes?namespace=team#node-gpu-node-03") >= 5, (
        "grid, what speaks against it, attempts, faults, cordons, chain"
    )
    assert "/nodes?namespace=team#node-gpu-node-01" in links
    odd = running(attempts=[{"number": 1, "startTime": "2026-11-23T10:00:00Z", "nodeNames": ["attempt"]}])
    assert str(Links(nodes_of_story(explain(odd))).said("attempt 1")) == "attempt 1"
    assert PageLinks(["node-1"]).said("on node-1.") == 'on <a href="/nodes#node-node-1">node-1</a>.'
    assert PageLinks(["node-1"]).said("flux-node-1") == "flux-node-1"


def test_what_a_trouble_comes_to_is_a_list_below_its_headline() -> None:
    known = SITUATIONS["too few GPUs beside other reasons"][0]
    told = drawn(known).texts
    assert "1 of 2 pods have no node: of 4 nodes none takes a pod" in told["p"]
    assert "2 nodes have too little free nvidia.com/gpu" in told["li"]
    assert "What it rests on" in told["summary"], "the scheduler's own words are folded away"


def test_many_nodes_are_named_by_what_differs() -> None:
    names = [f"dgx-a-{rank:03d}.cluster.local" for rank in range(125)]
    known = running(attempts=[{"number": 1, "startTime": "2026-11-23T10:00:00Z", "nodeNames": names}])
    page = Page(gpus(nodes_of(known, explain(known)), wanted=130))
    assert page.texts["span"][:2] == ["000", "001"]
    assert page.all("li")[17]["title"] == "dgx-a-017.cluster.local"
    assert "5 more nodes, whose names are not known." in page.text
    assert "1 more node, whose name is not known." in Page(gpus(nodes_of(known, explain(known)), wanted=126)).text


def test_a_thousand_ranks_in_twenty_attempts_are_a_page_of_half_a_megabyte_at_most() -> None:
    known = gangs.large()
    story = explain(known)
    for choice in (Choice(), Choice(attempt=7)):
        body = drawn_job(story, known, choice).body
        assert len(body.encode()) < 500_000
        assert len(Page(body).all("a")) < 275, "stops of the keyboard: one or two a row"
    assert "981 nodes that nothing speaks against" in drawn_job(story, known, Choice()).body


def test_the_yaml_can_be_submitted_again_and_has_no_secret() -> None:
    page = drawn(gangs.gang())
    (said,) = [text for text in page.texts["code"] if "apiVersion" in text]
    assert "kind: TrainingJob\nmetadata:\n  name: flux-lora\n  namespace: team\nspec:\n  nodes: 4" in said
    assert "hf_secret" not in said
    assert "(struck out)" in said
    assert UID not in said


def test_nothing_that_a_job_says_becomes_markup() -> None:
    fault = {
        "time": "2026-11-23T10:30:00Z",
        "class": EVIL,
        "nodeName": EVIL,
        "evidence": [EVIL],
        "gpu": {"index": 1, "uuid": EVIL},
    }
    strikes = [{"gpuUUID": EVIL, "nodeName": EVIL, "lastTime": EVIL}]
    event = {
        "involvedObject": {"kind": "TrainingJob", "name": "flux"},
        "reason": EVIL,
        "message": EVIL,
        "type": "Warning",
    }
    known = running(lastFault=fault, strikes=strikes, avoidedNodes=[{"name": EVIL, "reason": EVIL, "sinceTime": EVIL}])
    assert known.job is not None
    made: dict[str, Any] = {**known.job, "spec": {"nodes": 2, EVIL: EVIL}}
    page = drawn(replace(known, job=made, events=(event,)))
    assert not [key for _, one in page.tags for key in one if key.startswith("on") or key == "style"]
    assert page.all("script") == page.all("img") == []
    assert not [one for one in page.all("a") if not OURS.fullmatch(str(one["href"]))]
    assert page.text.count("alert(1)") > 5, "all of it is there to be read"
