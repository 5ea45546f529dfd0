"""The parts of an agent, and the order in which they start: what others may have taken first, then processes, all at once."""

from __future__ import annotations

import errno
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_api.contract.environment import RUN_DIRECTORY, TERMINATION_LOG
from oarlock_api.contract.status import CheckResult, PreflightCheck
from oarlock_trainer.agent.gpus.gpu_guard import GpuGuard
from oarlock_trainer.agent.hangs.hang import Starts
from oarlock_trainer.agent.hangs.hang_guard import HangGuard
from oarlock_trainer.agent.hangs.stacks_on_request import StacksOnRequest
from oarlock_trainer.agent.link.gang_link import HEARTBEAT_SECONDS, SILENCE_SECONDS, GangLink
from oarlock_trainer.agent.outcome import Outcome
from oarlock_trainer.agent.questions import Questions
from oarlock_trainer.agent.ranks import accelerate_config, rank_environment
from oarlock_trainer.agent.ranks.local_command import LocalCommand
from oarlock_trainer.agent.ranks.local_ranks import LocalRanks
from oarlock_trainer.agent.report.report_page import ReportPage
from oarlock_trainer.agent.requests import Requests
from oarlock_trainer.agent.ring.ring import ring_of
from oarlock_trainer.agent.rounds.choice import membership_of
from oarlock_trainer.agent.rounds.gang_rounds import GangRounds
from oarlock_trainer.agent.slow.inquiry import SlowRankInquiry
from oarlock_trainer.agent.status.access import StatusAccess
from oarlock_trainer.agent.status.from_within import FromWithin
from oarlock_trainer.agent.status.status_board import StatusBoard
from oarlock_trainer.agent.status.status_server import StatusServer
from oarlock_trainer.agent.webhooks.redaction import secret_values
from oarlock_trainer.agent.webhooks.webhooks import Webhooks
from oarlock_trainer.checkpoint.memory.held import sweep
from oarlock_trainer.preflight.checks import Preflight
from oarlock_trainer.ranks import rank_host
from oarlock_trainer.runtime import children, clock, wakeup
from oarlock_trainer.runtime.channel import SAVE_SIGNAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oarlock_trainer.agent.history.history import History
    from oarlock_trainer.agent.ranks.ranks import Ranks
    from oarlock_trainer.agent.ring.parts_server import PartsServer
    from oarlock_trainer.agent.trainer_webhooks.inbox import Inbox
    from oarlock_trainer.runtime.assignment import Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the agent's command line can change. `grace_seconds`: time to save after SIGTERM, None = the kubelet's."""

    program: str = rank_host.PROGRAM
    warm: str = rank_host.WARM
    run_directory: Path = Path(RUN_DIRECTORY)
    termination_log: Path = Path(TERMINATION_LOG)
    grace_seconds: float | None = None


class PortTakenError(Exception):
    """Somebody else listens where this pod is to. The message says which field changes that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that the agent's loop turns. `port`: where /status is. `wakeup`: signals, as bytes."""

    port: int
    wakeup: int
    board: StatusBoard
    link: GangLink
    guard: HangGuard
    ranks: Ranks
    outcome: Outcome
    rounds: GangRounds
    watch: Callable[[float, int | None], tuple[HangGuard, Outcome]]
    """Makes guard and outcome of the next round's ranks, from now on; with the step in memory that they go on from."""
    webhooks: Webhooks
    gpus: GpuGuard
    preflight: Preflight
    questions: Questions
    page: ReportPage

    @property
    def sources(self) -> list[int]:
        """Descriptors that are readable when a part has news."""
        found = (self.wakeup, self.ranks.channel_descriptor, self.gpus.descriptor, self.link.descriptor)
        return [descriptor for descriptor in found if descriptor is not None]


def start(
    assignment: Assignment,
    options: Options,
    given: Mapping[str, str],
    history: History,
    *,
    now: float,
    alive: Callable[[], bool],
) -> Parts:
    """Start everything but the ranks. `given` is the container's environment.

    To be called from the main thread; raises ConfigurationError and PortTakenError before any process runs.
    """
    # An image, or spec.pod.envFrom, may have variables of these names.
    environment = rank_environment.without_secrets(given) | rank_environment.of_gang(assignment)
    board = StatusBoard(
        assignment.pod,
        job_uid=assignment.job.job_uid,
        ranks_per_pod=assignment.ranks_per_node,
        clock=clock.timestamp,
    )
    ranks = _ranks(assignment, options, environment | rank_environment.credentials(assignment, given), history)
    requests = Requests(board, ranks.signal, lambda name, now: stacks.begin(name, now))  # noqa: PLW0108 - it is made below
    sweep(assignment.job.job_uid, assignment.job.attempt, shared_memory=assignment.shared_memory)
    ring = ring_of(assignment)
    port, link = _listen(
        assignment, board, alive, inbox=ranks.inbox, requests=requests, parts=ring.server if ring else None
    )
    output = Path(assignment.job.output_directory)
    stacks = StacksOnRequest(assignment, ranks=ranks, link=link, history=history, output=output)
    children.adopt_orphans()
    woken = wakeup.on(signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
    rounds = GangRounds(
        assignment,
        link,
        books=board.begin_round,
        waits_for=board.wait_for,
        timestamp=clock.timestamp,
        now=now,
        ring=ring,
    )
    secrets = secret_values(given)

    starts = Starts()

    def watch(now: float, step: int | None) -> tuple[HangGuard, Outcome]:
        guard = HangGuard(
            assignment.pod,
            ranks,
            job_uid=assignment.job.job_uid,
            hang_seconds=assignment.job.recovery.hang_seconds,
            now=now,
            starts=starts,
            from_memory=step is not None,
        )
        log = options.termination_log
        return guard, Outcome(assignment.pod, board, log, ranks=ranks, secrets=secrets, stays=rounds.stays)

    guard, outcome = watch(now, None)
    ranks.load()
    webhooks = Webhooks.of(assignment, given)
    gpus = GpuGuard(
        assignment,
        environment,
        board=board,
        outcome=outcome,
        webhooks=webhooks,
        save=lambda: ranks.signal(SAVE_SIGNAL),
        claims=ranks.claims,
        now=now,
    )
    preflight = Preflight(
        assignment, environment, collective=ranks.can_check_collective, torch_cuda=ranks.torch_cuda, now=now
    )
    slowness = SlowRankInquiry(
        pod=assignment.pod.rank,
        gpus_per_pod=0 if assignment.on_cpu else assignment.job.gpus_per_node,
        board=board,
        link=link,
        gpus=gpus,
    )
    for name in preflight.expected:
        board.check(PreflightCheck(name, CheckResult.RUNNING))
    for name in preflight.unsupported:
        board.check(
            PreflightCheck(name, CheckResult.NOT_SUPPORTED, detail="the built-in trainer's ranks alone can do it")
        )
    accelerate_config.write(ranks.launch, options.run_directory)
    return Parts(
        port=port,
        wakeup=woken,
        board=board,
        link=link,
        guard=guard,
        ranks=ranks,
        outcome=outcome,
        rounds=rounds,
        watch=watch,
        webhooks=webhooks,
        gpus=gpus,
        preflight=preflight,
        questions=Questions(requests, slowness, stacks),
        page=ReportPage(assignment, given),
    )


def _ranks(assignment: Assignment, options: Options, environment: Mapping[str, str], history: History) -> Ranks:
    if custom := assignment.job.custom:
        return LocalCommand(custom, assignment, environment, keep=history.streams)
    return LocalRanks(
        assignment,
        environment,
        program=options.program,
        warm=options.warm,
        run_directory=options.run_directory,
        keep=history.streams,
    )


def _listen(
    assignment: Assignment,
    board: StatusBoard,
    alive: Callable[[], bool],
    *,
    inbox: Inbox | None,
    requests: Requests,
    parts: PartsServer | None,
) -> tuple[int, GangLink]:
    job, pod = assignment.job, assignment.pod
    field, port = "link", job.ports.link
    try:
        link = GangLink(
            job_uid=job.job_uid,
            attempt=pod.attempt,
            rank=pod.rank,
            nodes=assignment.pods,
            leader=assignment.master_address,
            port=port,
            heartbeat=HEARTBEAT_SECONDS,
            silence=SILENCE_SECONDS,
            key=assignment.key,
            node=pod.node,
            incarnation=pod.incarnation,
            replaces=pod.replaces_pods,
            chooses=not membership_of(assignment).is_fixed,
            surge=pod.surge,
        )
        field, port = "status", job.ports.status
        server = StatusServer(
            port=port,
            job=job.job,
            status=lambda: board.status,
            alive=alive,
            inbox=inbox,
            access=StatusAccess(assignment.key, pod.pod_uid),
            ask=requests.ask,
            ended=link.have_ended,
            surge=link.note_surge,
            within=FromWithin(Path(job.output_directory), board.recent, attempt=pod.attempt),
            parts=parts,
        )
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise PortTakenError(
            f"port {port} of this node is taken ({error.strerror}): set spec.pod.ports.{field}"
        ) from error
    return server.port, link
