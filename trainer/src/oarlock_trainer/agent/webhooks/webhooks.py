"""The agent's way to tell receivers what happens: it is shown the status and the end, the rest is in here.

    webhooks = Webhooks.of(assignment, environment)
    webhooks.observe(board.status)      # in every turn of the loop; costs nothing while nothing changes
    webhooks.gpu_fault(fault)           # the moment it is known; any thread, any pod
    webhooks.ended(report, status)      # once, when the verdict is final; no report = all is done
    webhooks.close(within=2.0)          # last: sends what it can in that time

No call blocks, but for `close`, and none raises: a run never ends because of who listens to it. Of a run's life only the
pod of rank 0 tells; GPU faults and errors are told by the pod that has them. Nothing is sent from the operator.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from oarlock_trainer.agent.webhooks import events
from oarlock_trainer.agent.webhooks.envelope import GPU_FAULT, TYPES, Identity, WebhookEvent, identity_of
from oarlock_trainer.agent.webhooks.gpu_fault import GpuFault, fault_of, gpu_fault
from oarlock_trainer.agent.webhooks.outbox import QueuedMessage
from oarlock_trainer.agent.webhooks.pace import RETRIES, RetryPolicy, TokenBucket
from oarlock_trainer.agent.webhooks.receivers import Receiver, ReceiverError, receiver_of
from oarlock_trainer.agent.webhooks.redaction import secret_values, without_secrets
from oarlock_trainer.agent.webhooks.sender import Sender, Tally
from oarlock_trainer.agent.webhooks.story import Story, is_own_error
from oarlock_trainer.runtime import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from oarlock_api.contract.report import Report
    from oarlock_api.contract.sections import Webhook
    from oarlock_api.contract.status import PodStatus
    from oarlock_trainer.runtime.assignment import Assignment

log = logging.getLogger(__name__)

JOB_ID = "SIMPLETUNER_JOB_ID"
"""By this variable in spec.pod.env an orchestrator made for SimpleTuner gives a run its own name."""

_P = ParamSpec("_P")


def _never_raises(
    method: Callable[Concatenate[Webhooks, _P], None],
) -> Callable[Concatenate[Webhooks, _P], None]:
    @functools.wraps(method)
    def guarded(self: Webhooks, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        if self.tells_nobody:
            return
        try:
            method(self, *args, **kwargs)
        except Exception:
            log.exception("a webhook message could not be made")

    return guarded


class Webhooks:
    """All receivers of a job, as one pod sees them."""

    def __init__(
        self,
        receivers: Sequence[Receiver],
        identity: Identity,
        *,
        secrets: Sequence[str] = (),
        timestamp: Callable[[], str] = clock.timestamp,
        now: Callable[[], float] = time.monotonic,
        retries: RetryPolicy = RETRIES,
    ) -> None:
        self._identity = identity
        self._secrets = secrets
        self._timestamp = timestamp
        self._now = now
        self._story = Story(identity)
        # A fault neither waits behind other messages nor counts against the limit.
        self._lanes = [
            (receiver, Sender(receiver, bucket=TokenBucket(), retries=retries), Sender(receiver, retries=retries))
            for receiver in receivers
        ]
        self._lock = threading.Lock()
        self._faults_told: set[str] = set()
        self._gravest: dict[str, int] = {}
        self._step: int | None = None

    @classmethod
    def of(cls, assignment: Assignment, environment: Mapping[str, str]) -> Webhooks:
        """The webhooks of this pod's job. One that cannot work is logged and left out; the others do."""
        receivers = [
            receiver for webhook in assignment.job.webhooks if (receiver := _usable(webhook, environment)) is not None
        ]
        identity = identity_of(assignment, environment.get(JOB_ID, ""))
        return cls(receivers, identity, secrets=secret_values(environment))

    @property
    def tells_life(self) -> bool:
        """Whether this pod tells of the run's life; `observe` and `ended` heed it themselves."""
        return self._identity.tells_life

    @property
    def tells_nobody(self) -> bool:
        """No receiver: every call is a no-op."""
        return not self._lanes

    @property
    def tallies(self) -> dict[str, Tally]:
        """Receiver -> what became of the messages to it."""
        return {receiver.name: _sum(usual.tally, urgent.tally) for receiver, usual, urgent in self._lanes}

    @_never_raises
    def observe(self, status: PodStatus) -> None:
        """Tell what is new in the status: stages, start, progress, checkpoints."""
        self._step = status.figures.step
        if self.tells_life:
            for event in self._story.changes(status, at=self._timestamp(), now=self._now()):
                self._tell(event)

    @_never_raises
    def gpu_fault(self, fault: GpuFault) -> None:
        """Tell of a GPU fault, each once."""
        event = gpu_fault(self._identity, self._timestamp(), fault=fault, step=self._step)
        with self._lock:
            known = event.payload["dedupe_id"] in self._faults_told
            self._faults_told.add(event.payload["dedupe_id"])
            for key in (fault.gpu_key, ""):
                self._gravest[key] = max(self._gravest.get(key, 0), fault.verdict.weight)
        if not known:
            self._tell(event)

    @_never_raises
    def ended(self, report: Report | None, status: PodStatus) -> None:
        """Tell how the pod ends: a GPU fault that was not told yet, an error of its own, and the end of the run's life."""
        self.observe(status)
        fault = fault_of(report) if report else None
        if fault:
            if self._gravest.get(fault.gpu_key, -1) < fault.verdict.weight:
                self.gpu_fault(fault)
        elif report and is_own_error(report):
            self._tell(events.error(self._identity, self._timestamp(), report=report))
        if self.tells_life:
            for event in self._story.end(report, status, at=self._timestamp()):
                self._tell(event)

    @_never_raises
    def close(self, within: float) -> None:
        """Send what can be sent within so many seconds, and nothing after that."""
        senders = [sender for _, *lanes in self._lanes for sender in lanes]
        ends_at = time.monotonic() + within
        for sender in senders:
            sender.close(ends_at)
        for sender in senders:
            sender.join()

    def _tell(self, event: WebhookEvent) -> None:
        payload = without_secrets(event.payload, self._secrets)
        for receiver, usual, urgent in self._lanes:
            if receiver.wants(event):
                message = QueuedMessage(type=event.type, level=event.level, body=receiver.body(payload))
                (urgent if event.type == GPU_FAULT else usual).put(message)


def _usable(webhook: Webhook, environment: Mapping[str, str]) -> Receiver | None:
    try:
        receiver = receiver_of(webhook, environment)
    except ReceiverError as error:
        log.error("webhook %s gets nothing: %s", webhook.name, error)  # noqa: TRY400 - the sentence says it all
        return None
    log.info("webhook %s is told what happens at %s", receiver.name, receiver.place)
    if unknown := sorted(receiver.events - set(TYPES)):
        log.warning("webhook %s: no such events: %s; there are %s", webhook.name, ", ".join(unknown), ", ".join(TYPES))
    return receiver


def _sum(one: Tally, other: Tally) -> Tally:
    return Tally(sent=one.sent + other.sent, lost=one.lost + other.lost, dropped=one.dropped + other.dropped)
