"""What the agent has of its webhooks: told by the right pod to whom it concerns, and never in its way."""

from __future__ import annotations

import ast
import json
import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from webhook_inbox import TOKEN_REF, URL_REF, variable
from webhook_pod import FAULT, FRESH, LIFE, LOST, assignment, kinds, telling
from webhook_schema import complaints

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.sections import Webhook
from oarlock_api.contract.webhooks import WebhookLevel, WebhookType
from oarlock_local import patience
from oarlock_local.patience import eventually
from oarlock_trainer.agent import webhooks as package
from oarlock_trainer.agent.webhooks.webhooks import Webhooks

if TYPE_CHECKING:
    from webhook_inbox import Inbox


def test_a_run_is_told_from_its_checks_to_its_summary_as_the_schema_says(inbox: Inbox) -> None:
    webhooks = telling(inbox)
    for status in LIFE:
        for _ in range(3):
            webhooks.observe(status)
    webhooks.ended(None, LIFE[-1])
    webhooks.close(within=patience.SECONDS)
    told = [one.json for one in inbox.received]
    assert [complaints(payload) for payload in told] == [[]] * len(told)
    assert [
        (payload["type"], (payload.get("stage") or payload.get("data") or {}).get("status")) for payload in told
    ] == [
        ("lifecycle.stage", "running"),
        ("lifecycle.stage", "running"),
        ("lifecycle.stage", "running"),
        ("training.status", "started"),
        ("lifecycle.stage", "running"),
        ("training.checkpoint", None),
        ("lifecycle.stage", "completed"),
        ("training.status", "completed"),
        ("training.summary", "completed"),
    ]


def test_a_receiver_hears_only_what_it_asked_for(inbox: Inbox, other: Inbox) -> None:
    webhooks = Webhooks.of(
        assignment(
            Webhook(name="saved", url=inbox.url, events=("training.checkpoint",)),
            Webhook(name="bad", url=other.url, min_level=WebhookLevel.ERROR),
        ),
        {},
    )
    for status in LIFE:
        webhooks.observe(status)
    webhooks.ended(replace(LOST, failure_class="Application", code=1), LIFE[-1])
    webhooks.close(within=patience.SECONDS)
    assert kinds(inbox) == ["training.checkpoint"]
    assert kinds(other) == ["error", "training.status"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"type": WebhookType.RAW}, ["training.progress"]),
        ({"type": WebhookType.DISCORD}, []),
        ({"type": WebhookType.DISCORD, "events": ("training.progress",)}, ["training.progress"]),
    ],
)
def test_a_chat_hears_of_progress_only_if_it_asks_for_it(inbox: Inbox, fields: dict[str, Any], told: list[str]) -> None:
    place = assignment(Webhook(name="test", url=inbox.url, **fields))
    now = iter([0.0, 61.0])
    plain = Webhooks.of(place, {})
    webhooks = Webhooks([lane[0] for lane in plain._lanes], plain._identity, now=lambda: next(now))
    webhooks.observe(LIFE[3])
    webhooks.observe(replace(LIFE[3], figures=Figures(step=2)))
    webhooks.close(within=patience.SECONDS)
    assert [one.headers["X-Oarlock-Event"] for one in inbox.received if "progress" in str(one.headers)] == told


def test_discord_gets_text_and_everybody_else_the_payload_each_with_its_prefix(inbox: Inbox, other: Inbox) -> None:
    webhooks = Webhooks.of(
        assignment(
            Webhook(name="raw", url=inbox.url, message_prefix="[one]"),
            Webhook(name="chat", url=other.url, type=WebhookType.DISCORD, message_prefix="[two]"),
        ),
        {},
    )
    webhooks.gpu_fault(FAULT)
    webhooks.close(within=patience.SECONDS)
    assert inbox.received[0].json["message"] == "[one] GPU 5 has fallen off the bus"
    assert other.received[0].json == {
        "content": "[two] 🔴 **GPU fault on node gpu-0**\nGPU 5 has fallen off the bus\n"
        "`research/flux, attempt 3, node gpu-0`",
        "allowed_mentions": {"parse": []},
    }


def test_no_message_holds_a_secret_of_the_job(inbox: Inbox) -> None:
    environment = {variable(TOKEN_REF): "tok-0123456789", "OARLOCK_SECRET_OTHER": "s3-key-of-somebody"}
    webhooks = telling(inbox, environment=environment, auth_secret_ref=TOKEN_REF)
    webhooks.gpu_fault(replace(FAULT, message="it said tok-0123456789 and s3-key-of-somebody"))
    webhooks.close(within=patience.SECONDS)
    assert inbox.received[0].headers["X-API-Key"] == "tok-0123456789"
    assert inbox.received[0].json["message"] == "it said *** and ***"


def test_one_dead_receiver_costs_the_others_nothing(inbox: Inbox, other: Inbox) -> None:
    inbox.answers.open.clear()
    webhooks = Webhooks.of(
        assignment(Webhook(name="stuck", url=inbox.url), Webhook(name="alive", url=other.url)),
        {},
    )
    for status in LIFE:
        webhooks.observe(status)
    eventually(lambda: webhooks.tallies["alive"].sent == 7, "all messages at the other receiver")
    webhooks.close(within=0.0)
    assert webhooks.tallies["stuck"].lost == 0, "closing waited for nothing"


def test_what_is_told_while_the_pod_ends_still_goes_out(inbox: Inbox) -> None:
    webhooks = telling(inbox)
    for status in LIFE:
        webhooks.observe(status)
    webhooks.gpu_fault(FAULT)
    webhooks.ended(LOST, LIFE[-1])
    webhooks.close(within=patience.SECONDS)
    tally = webhooks.tallies["test"]
    assert (tally.sent, tally.lost, tally.dropped) == (len(inbox.received), 0, 0)
    assert {"gpu.fault", "training.status", "training.summary"} <= set(kinds(inbox))


def test_a_receiver_whose_secret_is_missing_is_told_of_and_the_others_work(
    inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    webhooks = Webhooks.of(
        assignment(Webhook(name="lost", url_secret_ref=URL_REF), Webhook(name="test", url=inbox.url)), {}
    )
    webhooks.gpu_fault(FAULT)
    webhooks.close(within=patience.SECONDS)
    assert kinds(inbox) == ["gpu.fault"]
    assert f"webhook lost gets nothing: {variable(URL_REF)} is empty" in caplog.text


def test_the_log_says_where_a_receiver_is_and_nothing_of_an_address_from_a_secret(
    inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    environment = {variable(URL_REF): "https://tunnel-4711.example.com/x"}
    hidden = Webhook(name="hidden", url_secret_ref=URL_REF)
    with caplog.at_level(logging.INFO):
        Webhooks.of(assignment(Webhook(name="plain", url=f"{inbox.url}/token"), hidden), environment)
    assert caplog.messages == [
        f"webhook plain is told what happens at {inbox.url}/***",
        "webhook hidden is told what happens at the address in its Secret",
    ]


def test_an_event_that_does_not_exist_is_pointed_out(inbox: Inbox, caplog: pytest.LogCaptureFixture) -> None:
    telling(inbox, events=("gpu.falut", "error"))
    assert "no such events: gpu.falut" in caplog.text


def test_without_a_receiver_nothing_happens_and_no_thread_is_started() -> None:
    before = threading.active_count()
    webhooks = Webhooks.of(assignment(), {})
    for status in LIFE:
        webhooks.observe(status)
    webhooks.gpu_fault(FAULT)
    webhooks.ended(LOST, FRESH)
    webhooks.close(within=patience.SECONDS)
    assert (threading.active_count(), webhooks.tallies) == (before, {})


def test_what_cannot_be_told_is_logged_and_harms_nobody(inbox: Inbox, caplog: pytest.LogCaptureFixture) -> None:
    webhooks = telling(inbox)
    with caplog.at_level(logging.ERROR):
        webhooks.observe(None)  # type: ignore[arg-type]
        webhooks.gpu_fault(None)  # type: ignore[arg-type]
        webhooks.ended(LOST, None)  # type: ignore[arg-type]
    assert caplog.text.count("a webhook message could not be made") >= 3
    webhooks.gpu_fault(FAULT)
    webhooks.close(within=patience.SECONDS)
    assert "gpu.fault" in kinds(inbox)


def test_text_that_is_no_unicode_is_sent_as_far_as_it_is(inbox: Inbox) -> None:
    webhooks = telling(inbox)
    webhooks.gpu_fault(replace(FAULT, message="a file \udcff name"))
    webhooks.close(within=patience.SECONDS)
    assert json.loads(inbox.received[0].body)["message"] == "a file ? name"


def test_the_package_reads_as_python_3_10() -> None:
    for path in Path(package.__file__).parent.glob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 10))
