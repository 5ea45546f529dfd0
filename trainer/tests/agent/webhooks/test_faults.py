"""GPU faults and errors are told by the pod that has them, once, and before everything else."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from webhook_pod import FAULT, FRESH, GPU, LIFE, LOST, everything, kinds, telling
from webhook_schema import complaints

from oarlock_api.contract.health import GpuVerdict
from oarlock_api.contract.status import PodPhase
from oarlock_api.contract.webhooks import WebhookLevel
from oarlock_local import patience
from oarlock_local.patience import eventually

if TYPE_CHECKING:
    from webhook_inbox import Inbox


def test_a_pod_other_than_rank_0_s_is_silent_about_the_run_and_not_about_its_faults(inbox: Inbox) -> None:
    webhooks = telling(inbox, rank=1)
    assert not webhooks.tells_life
    for status in LIFE:
        webhooks.observe(status)
    webhooks.gpu_fault(FAULT)
    webhooks.ended(LOST, LIFE[-1])
    webhooks.close(within=patience.SECONDS)
    assert kinds(inbox) == ["gpu.fault"]
    assert (inbox.received[0].json["node"], inbox.received[0].json["step"]) == ("gpu-1", 20)


def test_a_fault_is_told_once_however_often_it_is_seen_and_the_end_does_not_repeat_it(inbox: Inbox) -> None:
    webhooks = telling(inbox, events=("gpu.fault", "error"))
    for _ in range(8):
        webhooks.gpu_fault(FAULT)
    webhooks.ended(LOST, FRESH)
    webhooks.close(within=patience.SECONDS)
    assert kinds(inbox) == ["gpu.fault"]


def test_a_fault_that_nobody_told_before_is_told_at_the_end(inbox: Inbox) -> None:
    webhooks = telling(inbox, rank=1)
    webhooks.ended(LOST, FRESH)
    webhooks.close(within=patience.SECONDS)
    assert [one.json["fault"]["verdict"] for one in inbox.received] == ["ReplaceNode"]
    assert complaints(inbox.received[0].json) == []


def test_a_warning_about_a_gpu_does_not_silence_the_fault_that_follows(inbox: Inbox) -> None:
    webhooks = telling(inbox, rank=1)
    webhooks.gpu_fault(replace(FAULT, verdict=GpuVerdict.HOLD, xid=63))
    webhooks.ended(LOST, FRESH)
    webhooks.close(within=patience.SECONDS)
    assert {one.json["severity"] for one in inbox.received} == {"warning", "critical"}


@pytest.mark.parametrize(
    ("kind", "code", "told"),
    [
        ("Application", 1, ["error"]),
        ("Hang", 83, ["error"]),
        ("Storage", 84, ["error"]),
        ("Configuration", 85, ["error"]),
        ("Preflight", 87, ["error"]),
        ("PeerLost", 82, []),
        ("Requested", 86, []),
    ],
)
def test_a_pod_tells_of_an_error_of_its_own_and_not_of_another_s(
    inbox: Inbox, kind: str, code: int, told: list[str]
) -> None:
    webhooks = telling(inbox, rank=1)
    webhooks.ended(replace(LOST, failure_class=kind, code=code, gpu=None, xid=None), FRESH)
    webhooks.close(within=patience.SECONDS)
    assert kinds(inbox) == told
    assert [complaints(one.json) for one in inbox.received] == [[]] * len(told)


def test_a_fault_does_not_wait_for_a_receiver_that_is_stuck_with_something_else(inbox: Inbox) -> None:
    inbox.answers.open.clear()
    webhooks = telling(inbox)
    webhooks.observe(FRESH)
    eventually(lambda: len(inbox.received) == 1, "the first message to be stuck")
    webhooks.gpu_fault(FAULT)
    eventually(lambda: "gpu.fault" in kinds(inbox), "the fault to arrive meanwhile")
    webhooks.close(within=0.0)


def test_a_fault_does_not_wait_for_the_limit(inbox: Inbox) -> None:
    webhooks = telling(inbox, min_level=WebhookLevel.DEBUG)
    for number in range(60):
        webhooks.observe(replace(FRESH, phase=PodPhase.SAVING if number % 2 else PodPhase.TRAINING))
    everything(inbox, webhooks, 30)
    webhooks.gpu_fault(FAULT)
    eventually(lambda: "gpu.fault" in kinds(inbox), "the fault to arrive at once")
    assert len(inbox.received) < 60
    webhooks.close(within=0.0)


def test_many_threads_may_tell_at_once(inbox: Inbox) -> None:
    webhooks = telling(inbox)
    threads = [
        threading.Thread(target=lambda n=n: webhooks.gpu_fault(replace(FAULT, gpu=replace(GPU, uuid=f"GPU-{n % 8}"))))
        for n in range(32)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    webhooks.close(within=patience.SECONDS)
    assert sorted(one.json["fault"]["gpu"]["uuid"] for one in inbox.received) == [f"GPU-{n}" for n in range(8)]
