"""Reading /status: step, loss, newest checkpoint from rank 0; from others whether they live.

Bounded in time and size, and believed only if it names this job, this pod and this attempt, because addresses are reused.
A pod that does not answer is no news, never an error: a pass must not fail because a trainer is busy.

A loss that is not finite is told for five minutes after rank 0 last told of it: it speaks of its last step only, and where
such losses alternate with others, a condition that followed each look would flip all day, with an Event each time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from enum import Enum

import aiohttp
from yarl import URL

from oarlock_api.contract import gang_key
from oarlock_api.contract.health import HealthState
from oarlock_api.contract.requests import MEANT, RequestState
from oarlock_api.contract.rounds import SurgePod, words_of_ended, words_of_surge
from oarlock_api.contract.status import MAX_BYTES, Degradation, PodStatus, parse_status
from oarlock_api.contract.wire import WireError
from oarlock_api.spec import TrainingJobSpec
from oarlock_api.status import ConditionType
from oarlock_operator import schedulers
from oarlock_operator.kube.api_error import ApiError
from oarlock_operator.kube.cluster import Cluster, read_at_most
from oarlock_operator.model.job_memory import Heard, JobMemory
from oarlock_operator.model.observation import Job, Pod, newest, standing_by
from oarlock_operator.model.reasons import UNMONITORED

TIMEOUT_SECONDS = 2.0
PARALLEL = 16
PATIENCE_SECONDS = 0.1
"""How long a pass waits for rank 0: a pod that lives answers in a few milliseconds, and one that does not must not hold a
worker. A later answer is kept for the next pass."""
OTHERS_SECONDS = 60.0
"""How often each pod but rank 0 is asked."""
MOST_OTHERS = 32
"""So many of them in one pass: those that do not answer cost it two seconds together."""
UNMONITORED_SECONDS = 60.0
"""For how long GPUs are to be unmonitored before it is told: a monitor that ended is started again."""
NOT_FINITE_SECONDS = 300.0
"""How long a loss that is not finite is told of after it was last seen."""


class Refused(Enum):
    """A pod answers, but not us."""

    KEY = "key"


def _steady(status: PodStatus) -> PodStatus:
    """The status with what it said of a loss a while ago, unless it says so now."""
    message = f"a loss was not finite less than {NOT_FINITE_SECONDS / 60:.0f} minutes ago"
    return replace(status, degraded={Degradation.NON_FINITE_LOSS: message, **status.degraded})


def _unsigned(pod: Pod, said: str) -> str:
    """What a pod says without a signature. Raises WireError where it has a key: then it is another who says so."""
    if pod.program.keyed:
        raise WireError("the pod has its gang's key, and this answer is not signed with it")
    return said


def _request(job: Job, pod: Pod) -> str:
    """What rank 0 is asked besides: a request that is written down, until its end is."""
    asked = job.status.request
    open_ = asked is not None and asked.state == RequestState.ASKED and asked.attempt == pod.attempt
    return f"{asked.verb}.{asked.id}" if asked and open_ and pod.rank == 0 else ""


def _ended(job: Job, pod: Pod) -> str:
    """Of which pods rank 0 is told that they were seen to end: those that others take the place of."""
    if pod.rank != 0 or pod.attempt != job.status.attempt:
        return ""
    return words_of_ended((one.rank, one.incarnation) for one in job.status.recovery.replacing if one.ended)


def _surge(job: Job, pod: Pod, now: datetime) -> str:
    """Which surge pods rank 0 is told of, and that there are none; nothing where the job has none ever."""
    if pod.rank != 0 or job.spec is None or not schedulers.may_surge(job.spec, job.status.resolved):
        return ""
    surging = job.status.recovery.surging if pod.attempt == job.status.attempt else ()
    return words_of_surge(
        SurgePod(one.rank, one.incarnation, max(0, round((one.hold_until_time - now).total_seconds())))
        for one in surging
    )


def request_seconds(job: Job, memory: JobMemory) -> float:
    """For how long rank 0 has answered questions that carry the job's open request."""
    asked = job.status.request
    carried = f"{asked.verb}.{asked.id}" if asked else ""
    return max(
        (h.asked - h.request_since for h in memory.heard.values() if carried and h.request == carried), default=0.0
    )


_STATUS = "/status"
_MOST_BYTES = MAX_BYTES + 256
"""With the line that signs it."""


def unmonitored(job: Job, memory: JobMemory) -> dict[str, str] | None:
    """Why nobody watches the GPUs of the job's pods, by the pods' uids; told of those where it lasts.

    None where the job says so already, and this process has not asked all of its pods yet.
    """
    heard = memory.heard
    told = any(UNMONITORED in each.message for each in job.status.conditions if each.type == ConditionType.DEGRADED)
    if told and (not heard or any(known.asked == -math.inf for known in heard.values())):
        return None
    least = 0.0 if told else UNMONITORED_SECONDS
    return {uid: known.unmonitored for uid, known in heard.items() if known.asked - known.unmonitored_since >= least}


class Route(Enum):
    """How a pod is reached."""

    DIRECT = "direct"
    PROXY = "proxy"


class ProgressReader:
    """Reads /status by one route. Close it with the process."""

    def __init__(
        self,
        cluster: Cluster,
        route: Route,
        *,
        clock: Callable[[], float],
        keys: Sequence[bytes] = (),
    ) -> None:
        """`keys` are those of gangs, as in Defaults."""
        self._cluster = cluster
        self._route = route
        self._clock = clock
        self._flights: dict[str, asyncio.Task[None]] = {}
        self.keys = keys
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        for flight in self._flights.values():
            flight.cancel()
        if self._session:
            await self._session.close()

    async def read(self, job: Job, pods: Sequence[Pod], memory: JobMemory) -> tuple[PodStatus | None, dict[str, float]]:
        """Status of rank 0 of the current attempt, and for how many seconds which pods (by uid) have not answered.

        The others are asked seldom, and only while the gang trains. A gang in which something has ended that its round needs
        is not asked: its decision must not wait for an answer. Silence counts from this process's own first question, so that
        a start of the operator accuses nobody.
        """
        current = newest(pods, job.status, job.status.attempt)
        running = [pod for pod in current if pod.started]
        idle = standing_by(job.status, job.status.attempt)
        train_on = {one.rank for one in job.status.recovery.surging}
        over = any(
            pod.stopped or (pod.deleting and pod.rank not in train_on) for pod in current if pod.rank not in idle
        )
        if over or not any(pod.rank == 0 for pod in running):
            return None, {}
        heard = {pod.uid: memory.heard.get(pod.uid, Heard()) for pod in running}
        for gone in memory.heard.keys() - heard.keys():
            memory.keys.pop(gone, None)
            memory.answers.pop(gone, None)
        memory.heard = heard
        now, trains = self._clock(), job.status.recovery.stage is None
        others = [pod for pod in running if pod.rank != 0 and trains and now - heard[pod.uid].asked >= OTHERS_SECONDS]
        others.sort(key=lambda pod: heard[pod.uid].asked)
        for pod in others[:MOST_OTHERS]:
            self._set_out(job, pod, memory)
        first = next(pod for pod in running if pod.rank == 0)
        if first.uid not in self._flights:
            await asyncio.wait({self._set_out(job, first, memory)}, timeout=PATIENCE_SECONDS)
        now = self._clock()
        return memory.answers.pop(first.uid, None), {
            uid: now - since for uid, known in heard.items() if (since := known.silent_since) is not None
        }

    def _set_out(self, job: Job, pod: Pod, memory: JobMemory) -> asyncio.Task[None]:
        """Ask a pod in the background, unless that is under way; what it answers, or that it does not, is noted."""
        if pod.uid not in self._flights:
            self._flights[pod.uid] = asyncio.create_task(self._ask_and_note(job, pod, memory))
        return self._flights[pod.uid]

    async def _ask_and_note(self, job: Job, pod: Pod, memory: JobMemory) -> None:
        try:
            status = await self.ask(job, pod, memory)
        finally:
            del self._flights[pod.uid]
        heard = memory.heard
        if pod.uid not in heard:
            return
        now = self._clock()
        if status is None:
            heard[pod.uid] = replace(heard[pod.uid], asked=now, silent_since=heard[pod.uid].silent_since or now)
            return
        if isinstance(status, Refused):
            heard[pod.uid] = replace(heard[pod.uid], asked=now, silent_since=None, refuses=True)
            return
        held, blind = (status.health.state == state for state in (HealthState.HOLD, HealthState.UNMONITORED))
        not_finite = now if Degradation.NON_FINITE_LOSS in status.degraded else heard[pod.uid].not_finite
        request, before = _request(job, pod), heard[pod.uid]
        heard[pod.uid] = Heard(
            asked=now,
            warning=status.health.reason if held else "",
            held=status.health.held if held else (),
            unmonitored=status.health.reason or "it does not say why" if blind else "",
            unmonitored_since=min(now, heard[pod.uid].unmonitored_since) if blind else math.inf,
            not_finite=not_finite,
            request=request,
            request_since=before.request_since if before.request == request else now,
        )
        if pod.rank == 0:
            memory.answers[pod.uid] = _steady(status) if now - not_finite < NOT_FINITE_SECONDS else status

    async def answering(self, job: Job, pods: Sequence[Pod], memory: JobMemory) -> frozenset[str]:
        """Uids of those pods whose agent answers."""
        gate = asyncio.Semaphore(PARALLEL)

        async def ask(pod: Pod) -> bool:
            async with gate:
                answer = await self.ask(job, pod, memory)
                # A refusal is nobody's in particular: of a pod that has signed with our key, only its own word counts.
                return answer is not None and not (isinstance(answer, Refused) and pod.uid in memory.keys)

        answers = await asyncio.gather(*(ask(pod) for pod in pods))
        return frozenset(pod.uid for pod, answered in zip(pods, answers, strict=True) if answered)

    async def ask(self, job: Job, pod: Pod, memory: JobMemory) -> PodStatus | Refused | None:
        """One pod's status, that it was given another key, or None where there is no news.

        A pod that mounts no key (of one node, or of an earlier release) answers unsigned, and is believed.
        """
        if not pod.address or job.spec is None:
            return None
        try:
            said = await self._said(job, job.spec, pod, memory)
            if said is None:
                return Refused.KEY
            status = parse_status(said)
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError, WireError):
            return None
        ours = (status.job_uid, status.pod_uid, status.attempt) == (job.uid, pod.uid, pod.attempt)
        return status if ours else None

    async def _said(self, job: Job, spec: TrainingJobSpec, pod: Pod, memory: JobMemory) -> str | None:
        """What /status says, None where it does not take us for its operator. Raises where there is no answer to believe."""
        port, known, request = spec.pod.ports.status, memory.keys.get(pod.uid), _request(job, pod)
        masters = [known] if known else self.keys if spec.nodes > 1 else []
        for master in masters:
            key = gang_key.attempt_key(gang_key.job_key(master, job.uid), job.uid, pod.attempt)
            # A pod takes no question that is dated long ago, and this machine's clock may be wrong.
            now = self._cluster.server_clock.now()
            about = {"request": request, "ended": _ended(job, pod), "surge": _surge(job, pod, now)}
            target = gang_key.question(key, _STATUS, pod_uid=pod.uid, now=now.timestamp(), **about)
            said = await self._fetch(job, pod, port, target)
            if gang_key.is_refusal(said):
                continue
            if (body := gang_key.answered(key, target, said)) is not None:
                memory.keys[pod.uid] = master
                return body
            return _unsigned(pod, said)
        if masters:
            return None
        said = await self._fetch(job, pod, port, f"{_STATUS}?request={request}" if request else _STATUS)
        return None if gang_key.is_refusal(said) else _unsigned(pod, said)

    async def _fetch(self, job: Job, pod: Pod, port: int, target: str) -> str:
        if self._route is Route.PROXY:
            path = f"/api/v1/namespaces/{job.namespace}/pods/{pod.name}:{port}/proxy{target}"
            try:
                return await self._cluster.text(path, timeout=TIMEOUT_SECONDS, max_bytes=_MOST_BYTES)
            except ApiError as error:
                if gang_key.is_refusal(error.message):
                    return error.message
                raise
        if self._session is None:
            # An agent without a key takes us for the pod itself where a service mesh's sidecar hands us on from 127.0.0.1.
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS), headers={MEANT: "1"}
            )
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        url = URL(f"http://{host}:{port}{target}", encoded=True)
        # No redirects: a pod must not choose what the operator asks for.
        async with asyncio.timeout(TIMEOUT_SECONDS), self._session.get(url, allow_redirects=False) as answer:
            return (await read_at_most(answer.content, _MOST_BYTES)).decode(errors="replace")
