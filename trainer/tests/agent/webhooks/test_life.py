"""A real agent tells a real receiver what happens to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook_schema import complaints

from oarlock_local.patience import eventually

if TYPE_CHECKING:
    from agent_process import Agent
    from webhook_inbox import Inbox


def test_a_run_that_ends_well_is_told_to_its_end(agent: Agent, inbox: Inbox) -> None:
    agent.job["webhooks"] = [{"name": "test", "url": inbox.url}]
    agent.start("leaves_its_environment")
    assert agent.wait() == 0
    told = [one.json for one in inbox.received]
    assert [complaints(payload) for payload in told] == [[]] * len(told)
    assert [payload["type"] for payload in told][-2:] == ["training.status", "training.summary"]
    assert told[-2]["data"]["status"] == "completed"


def test_an_agent_whose_receiver_never_answers_ends_all_the_same(agent: Agent, inbox: Inbox) -> None:
    agent.altered = {"oarlock_trainer.agent.leaving:WEBHOOKS_SECONDS": 0.2}
    inbox.answers.open.clear()
    agent.job["webhooks"] = [{"name": "test", "url": inbox.url}]
    agent.start("leaves_its_environment")
    assert agent.wait() == 0
    eventually(lambda: inbox.received, "that it was told")
