"""The page as a whole: what a job says stays text, nothing is fetched, and each thing that is known can be found."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest
from pages import Page, hung
from situations import HUNG, UID, facts, job, last_fault, line, output, pod

from oarlock.explain import explain
from oarlock.explain.causes import Cause
from oarlock.facts import Facts
from oarlock.report import Gallery, report
from oarlock.report.pictures import Picture
from oarlock.report.words import DASH
from oarlock_api.contract.struck_out import STRUCK_OUT

EVIL = (
    "\"'><script>alert(1)</script><img src=x onerror=alert(1)><a href=javascript:alert(1)>"
    "\x1b[31m\u202e\ud800</style></title>"
)
TAGS = """
    html head meta title style body main header section footer h1 h2 h3 p span strong code ul li dl dt dd div details
    summary table thead tbody tr th td figure figcaption img input label output svg g line path rect circle text script
    progress a time small
"""
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def test_the_same_facts_give_the_same_page() -> None:
    assert report(hung()) == report(Facts.of(hung().to_json()))


def test_what_is_known_of_a_job_that_is_gone_stands_on_the_page() -> None:
    page = Page(report(hung()))
    assert page.texts["h1"] == ["team/flux"]
    told = dict(zip(page.texts["dt"], page.texts["dd"], strict=True))
    assert (told["Step"], told["Loss"], told["Seconds per step"]) == ("20", "0.05", "10")
    assert (told["GPUs"], told["Attempts"]) == ("16", "2")
    assert told["Last fault"] == "Hang"
    assert page.texts["small"] == ["of 40", "57 min 40 s ago on node-2", "2 \u00d7 8"]
    assert HUNG in page.text
    assert "the stack of the rank" in page.text, "what to do"
    headings = ["Curve", "Timeline", "Faults", "Attempts", "What happened", "Settings"]
    assert page.texts["h2"] == headings


def test_nothing_that_a_job_says_becomes_markup() -> None:
    line_of_evil = line("Fault", time="10:05:00", rank=1, node=EVIL, reason=EVIL, message=EVIL, data={"code": 83})
    told = hung(EVIL).output
    assert told is not None
    fault = last_fault("Application", EVIL, nodeName=EVIL, rank=1, action=EVIL, gpu={"index": 1, "uuid": EVIL})
    attempts = [
        {"number": 1, "startTime": "2026-11-23T10:00:00Z", "endReason": EVIL, "reason": EVIL, "nodeNames": [EVIL]}
    ]
    cordons = [{"name": EVIL, "reason": EVIL, "time": "2026-11-23T10:31:00Z", "attempt": 1, "gpu": {"uuid": EVIL}}]
    made = job("Failed", attempts=attempts, lastFault=fault, cordonedNodes=cordons, message=EVIL)
    made["spec"] = {EVIL: EVIL, "training": {"model": [EVIL, {"name": EVIL, "value": EVIL}]}}
    known = Facts(
        namespace=EVIL,
        name=EVIL,
        time="2026-11-23T11:00:00Z",
        job=made,
        output=output(*told.history, line_of_evil, metrics=told.metrics),
    )
    picture = Picture(step=10, name=EVIL, prompt=EVIL, width=64, height=64, source=PIXEL)
    written = report(known, Gallery(steps=((picture,),), left_out=EVIL))
    written.encode()
    page = Page(written)
    assert {name for name, _ in page.tags} <= set(TAGS.split())
    assert len(page.all("script")) == len(page.all("style")) == 1, "our own"
    assert not [key for _, attributes in page.tags for key in attributes if key.startswith("on") or key == "style"]
    assert [one["src"] for one in page.all("img")] == [PIXEL]
    assert [one for one in page.all("a") if not re.fullmatch(r"#(fault|cordon|attempt)-\d", str(one["href"]))] == []
    assert not set("\x1b\u202e") & set(written)
    assert page.text.count("alert(1)") > 20, "all of it is there to be read"


def test_nothing_comes_from_elsewhere_and_only_what_was_hashed_may_run() -> None:
    picture = Picture(step=10, name="boat", width=64, height=64, source="../validation/step-10/boat.png")
    page = Page(report(hung(), Gallery(steps=((picture,),))))
    policy = next(one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    for directive, tag in (("style-src", "style"), ("script-src", "script")):
        (content,) = page.texts[tag]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy
        assert "url(" not in content
    assert policy.startswith("default-src 'none';")
    links = [value for _, one in page.tags for key in ("src", "href") if (value := one.get(key)) and value[0] != "#"]
    assert links == ["../validation/step-10/boat.png"] * 2
    assert not re.search(r"(https?:)?//", " ".join(links))


def test_a_page_without_pictures_has_no_script() -> None:
    page = Page(report(hung()))
    assert page.all("script") == []
    assert "script-src 'none'" in str(page.all("meta"))


def test_drawings_have_words_for_those_who_do_not_see_them() -> None:
    page = Page(report(hung(), Gallery(steps=((Picture(step=10, name="boat", prompt="a boat", source=PIXEL),),))))
    drawings = [one for one in page.all("svg") if one.get("role")]
    assert [one["role"] for one in drawings] == ["img"] * 4 + ["group"], "the curves; the timeline has links within it"
    assert all(one["aria-label"] for one in drawings)
    marks = [one for one in page.all("a") if str(one["href"]).startswith("#")]
    assert marks
    assert all(one["aria-label"] for one in marks)
    assert [one["alt"] for one in page.all("img")] == ["boat at step 10: a boat"]
    named = {one["id"] for _, one in page.tags if one.get("id")}
    assert {one["aria-labelledby"] for one in page.all("section")} | {one["for"] for one in page.all("label")} <= named
    assert {str(one["href"])[1:] for one in marks} <= named, "each mark of the timeline leads to its row"


def test_a_job_of_which_nothing_is_known_has_a_page_too() -> None:
    page = Page(report(facts(None)))
    assert "nothing is known of this job" in page.text
    assert "No step is known." in page.text


def test_losses_on_unseen_data_are_drawn_and_a_single_one_is_told() -> None:
    rows = [{"attempt": 1, "step": step, "evaluationLoss": {"photos": 4 / step}} for step in (10, 20)]
    page = Page(report(facts(None, output=output(metrics=rows))))
    assert "Loss on unseen data" in page.texts["h2"]
    assert page.texts["figcaption"] == ["photos"]
    assert "0.2" in page.texts["td"]
    page = Page(report(facts(None, output=output(metrics=rows[:1]))))
    assert "figcaption" not in page.texts
    assert "0.4" in page.texts["td"]


def test_settings_of_a_job_that_is_gone_are_those_that_its_output_keeps() -> None:
    spec = {"nodes": 4, "gpusPerNode": 8, "training": {"steps": 100}}
    kept = {"job": UID, "attempt": 3, "time": "2026-11-23T10:03:00Z", "spec": spec}
    page = Page(report(facts(None, output=output(spec=kept))))
    assert "training.steps" in page.texts["code"]
    assert "As attempt 3 began with them at 2026-11-23 10:03:00." in page.text
    assert "4 \u00d7 8" in page.text


def test_settings_are_told_and_what_looks_secret_is_struck_out() -> None:
    made = job("Running")
    made["metadata"]["uid"] = UID
    made["spec"] = {
        "nodes": 2,
        "gpusPerNode": 8,
        "training": {"optimizer": {"learningRate": 0.0001}, "maxTokens": 512, "resolutions": [512, 768]},
        "pod": {"env": [{"name": "HF_TOKEN", "value": "hf_1"}, {"name": "NCCL_DEBUG", "value": "INFO"}]},
        "program": {"command": ["train", "--api-key=abc", "https://me:pw@example.com/data?sig=1"]},
        "webhooks": [{"url": "https://hooks.example.com/T0/B1/xyz", "tokenSecretRef": {"name": "hook"}}],
    }
    page = Page(report(facts(made)))
    told = page.text
    assert "2 \u00d7 8" in told
    cells = dict(zip(page.texts["code"][-10:], page.texts["td"][-10:], strict=True))
    assert cells["training.optimizer.learningRate"] == "0.0001"
    assert cells["training.maxTokens"] == "512"
    assert cells["training.resolutions"] == "512, 768"
    assert [cells[f"pod.env[{place}].{name}"] for place, name in enumerate(("HF_TOKEN", "NCCL_DEBUG"))] == [
        STRUCK_OUT,
        "INFO",
    ]
    assert cells["program.command"] == "train, --api-key=(struck out), https://example.com/data"
    assert cells["webhooks[0].url"] == "https://hooks.example.com"
    assert cells["webhooks[0].tokenSecretRef.name"] == "hook"


@pytest.mark.parametrize(
    ("held", "wasted", "told"),
    [
        (7200, 360, ("95.0%", "of 2.0 GPU hours", "1.9 of 2.0 GPU hours made progress")),
        (32 * 3600 * 7, 3600, ("99.6%", "of 224 GPU hours", "223 of 224 GPU hours made progress")),
        (960, 480, ("50.0%", "of 16 GPU minutes", "8.0 of 16 GPU minutes made progress")),
        (48, 12, ("75.0%", "of 48 GPU seconds", "36 of 48 GPU seconds made progress")),
        (960, 960, (DASH, "", "none of 16 GPU minutes made progress")),
        (0, 0, (DASH, "", None)),
    ],
)
def test_goodput_is_the_share_of_gpu_time_that_made_progress(held: int, wasted: int, told: tuple[str, ...]) -> None:
    head = report(facts(job("Running", gpuSeconds=held, wastedGPUSeconds=wasted)))
    found = re.search(r"<dt>Goodput</dt><dd(?: title=\"([^\"]*)\")?>([^<]*)(?:<small>([^<]*)</small>)?</dd>", head)
    assert found
    assert (found[2], found[3] or "", found[1]) == told


def test_what_the_cause_says_already_is_not_said_again() -> None:
    head = report(facts(job("Starting"), pods=[pod(node="node-1")]))
    assert head.count(Cause.STARTING.meaning) == 1


def test_a_fault_of_an_unknown_time_says_where_it_was() -> None:
    fault = last_fault("Evicted", "had to leave", nodeName="node-1", time=None)
    attempts = [{"number": 1, "startTime": "2026-11-23T10:00:00Z", "endReason": "Evicted"}]
    page = Page(report(facts(job("Running", attempts=attempts, lastFault=fault))))
    assert "on node-1" in page.texts["small"]


def test_names_of_fields_are_for_programs_and_people_read_words() -> None:
    said = ["XID 79", "row 7 is not remapped"]
    fault = {**last_fault("GPU", "", verdict="ReplaceNode"), "evidence": said}
    attempts = [
        {"number": 1, "startTime": "2026-11-23T10:00:00Z", "endReason": "GPUFault"},
        {"number": 2, "startTime": "2026-11-23T10:40:00Z", "stageMilliseconds": {"start": 1000, "firstStep": 9000}},
    ]
    known = facts(job("Running", attempt=2, attempts=attempts, lastFault=fault))
    page = report(known)
    assert "the operator: " in page
    assert "first step 9.0 s" in page
    assert not re.search(r"status\.|FirstStep|LastFault|ReplaceNode", page)
    assert '"status.lastFault"' in json.dumps(explain(known).to_json())


def test_a_column_that_says_nothing_in_any_row_is_left_out() -> None:
    def heads(told: Facts) -> list[str]:
        return Page(report(told)).texts["th"]

    points = [{"step": step, "loss": 1 / step} for step in (1, 2)]
    attempts = [{"number": 1, "startTime": "2026-11-23T10:00:00Z"}]
    plain = heads(facts(job("Running", curve=points, attempts=attempts)))
    assert {"Step", "Loss"} <= set(plain)
    assert not {"Seconds per step", "Decision", "From step"} & set(plain)
    timed = [{**one, "secondsPerStep": 2.0} for one in points[1:]]
    more = heads(facts(job("Running", curve=[*points[:1], *timed], attempts=[{**attempts[0], "resumedFromStep": 4}])))
    assert {"Seconds per step", "From step"} <= set(more), "some have a figure"
