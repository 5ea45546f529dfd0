"""The agent's life, from the container's start to its exit code.

    assignment -> rank host starts importing | status server | preflight              (all at once)
               -> host ready and preflight passed: ranks
               -> first bad ending: report at once, a moment for the others' last words, then the end of all
               -> no progress in time: report at once, a moment for the ranks' stacks, then the end of all
               -> a GPU is out of service: report at once, and the end of all
               -> exit code of the verdict

One thread, one loop: signals, the ranks' channel and deadlines wake it. SIGTERM means "save and leave": ranks get it
and are waited for; before there are ranks it ends the pod at once; a second one (or the end of the grace time) kills.
"""

from __future__ import annotations

import logging
import math
import os
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_api.contract.environment import RUN_DIRECTORY, TERMINATION_LOG
from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.health import GpuVerdict
from oarlock_api.contract.status import CheckResult, PodPhase, PreflightCheck
from oarlock_api.contract.wire import integer
from oarlock_trainer import rank_host
from oarlock_trainer.agent import (
    accelerate_config,
    children,
    clock,
    logs,
    rank_environment,
    termination,
    wakeup,
)
from oarlock_trainer.agent.assignment import ConfigurationError, read_assignment, read_pod
from oarlock_trainer.agent.gpu_health import GpuHealth
from oarlock_trainer.agent.hang_guard import ANSWER_SECONDS, KEEP_SECONDS, WAKING_SECONDS, HangGuard
from oarlock_trainer.agent.local_ranks import LocalRanks
from oarlock_trainer.agent.outcome import Outcome
from oarlock_trainer.agent.preflight.checks import Preflight
from oarlock_trainer.agent.status_board import StatusBoard
from oarlock_trainer.agent.status_server import StatusServer
from oarlock_trainer.agent.verdict import Verdict
from oarlock_trainer.channel import Event
from oarlock_trainer.rank_host import SAVE_SIGNAL, HostEvent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oarlock_trainer.agent.accelerate_config import Launch
    from oarlock_trainer.agent.preflight.finding import Finding

log = logging.getLogger(__name__)

_SETTLE_SECONDS = 1.0
"""What the others get after the first bad ending: victims exit by themselves within it, and may name a root cause."""
_CORROBORATE_SECONDS = 2.5
"""What the GPU monitor gets after a rank blamed a GPU: one that is lost must be found so twice, a second apart."""
_SAVE_AGAIN_SECONDS = 300.0
"""Between two checkpoints that GPUs' symptoms ask for."""
_TICK_SECONDS = 1.0
_HANGING_SECONDS = 15.0
_LEVELS = {CheckResult.WARNING: logging.WARNING, CheckResult.FAILED: logging.ERROR}
_SWEEP_SECONDS = 0.5
_REPORT_COPY_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the agent's command line can change. `grace_seconds`: time to save after SIGTERM, None = the kubelet's."""

    program: str = rank_host.PROGRAM
    warm: str = rank_host.WARM
    run_directory: Path = Path(RUN_DIRECTORY)
    termination_log: Path = Path(TERMINATION_LOG)
    grace_seconds: float | None = None


def run(options: Options, environment: Mapping[str, str]) -> int:
    """Run the pod and return its exit code. To be called once, from the process's main thread."""
    pod = read_pod(environment)
    logs.set_up(pod)
    try:
        launch = accelerate_config.plan_launch(read_assignment(environment))
        return _Supervisor(launch, options, environment).run()
    except ConfigurationError as error:
        log.error("%s", error)  # noqa: TRY400 - the sentence says it all
        verdict = Verdict(code=ExitCode.CONFIGURATION, summary=str(error))
    except Exception as error:
        log.exception("the agent failed")  # the kernel ends the ranks with it
        verdict = Verdict(code=1, summary=f"the agent itself failed: {type(error).__name__}: {error}")
    termination.write(termination.report_of(verdict, pod, None), options.termination_log)
    return verdict.code


class _Supervisor:
    """The loop's state: what runs, what is awaited until when."""

    def __init__(self, launch: Launch, options: Options, environment: Mapping[str, str]) -> None:
        assignment = launch.assignment
        self._assignment = assignment
        self._options = options
        self._output = Path(assignment.job.output_directory)
        self._deadline = math.inf
        self._host_ready = self._ranks_started = self._over = False
        self._stop_requests = 0
        self._save_again_at = 0.0
        self._beat_at = time.monotonic()

        children.adopt_orphans()
        self._wakeup = wakeup.on(signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        host_environment = {**environment, **rank_environment.shared(launch, environment)}
        host_environment |= rank_environment.of_rank(assignment, 0)  # what the host itself tells, its first rank tells
        self._guard = HangGuard(
            assignment, environment, program=options.program, run_directory=options.run_directory, now=self._beat_at
        )
        self._ranks = LocalRanks(
            environment=host_environment | self._guard.environment,
            program=options.program,
            warm=options.warm,
            inherit=self._guard.inherited,
        )
        self._board = StatusBoard(
            assignment.pod, job_uid=assignment.job.job_uid, first_rank=assignment.first_rank, clock=clock.timestamp
        )
        self._outcome = Outcome(
            assignment, self._board, options.termination_log, output=lambda: self._ranks.last_output
        )
        self._gpus = GpuHealth(assignment, environment, now=self._beat_at)
        self._preflight = Preflight(assignment, environment, now=self._beat_at)
        for name in self._preflight.expected:
            self._board.check(PreflightCheck(name, CheckResult.RUNNING))
        self._start_server()
        accelerate_config.write(launch, options.run_directory)

    def run(self) -> int:
        while not self._over:
            self._wait()
            self._heed_signals()
            self._hear_ranks()
            ended = children.reap()
            self._bury(ended)
            self._heed_gpus(ended)
            self._heed_preflight(ended)
            self._start_ranks_when_due()
            self._check_progress()
            self._end_when_due()
        return self._leave()

    # What is started at once

    def _start_server(self) -> None:
        port = self._assignment.job.status_port
        try:
            server = StatusServer(
                port=port,
                job=self._assignment.job.job,
                status=lambda: self._board.status,
                alive=lambda: time.monotonic() - self._beat_at < _HANGING_SECONDS,
            )
        except OSError as error:
            self._end(
                ExitCode.PREFLIGHT,
                f"port {port} of this node is taken ({error.strerror}): set spec.pod.ports.status",
            )
        else:
            log.info("listening", extra={"port": server.port})

    # One turn of the loop

    def _wait(self) -> None:
        seconds = min(_TICK_SECONDS, max(self._deadline - time.monotonic(), 0.0))
        if not self._preflight.over:
            seconds = min(seconds, self._preflight.seconds_left(time.monotonic()))
        select.select([self._wakeup, self._ranks.channel_descriptor, self._gpus.descriptor], [], [], seconds)
        self._beat_at = time.monotonic()
        self._guard.advance(self._beat_at)
        self._board.beat(hang_after_seconds=self._guard.allowed)

    def _heed_signals(self) -> None:
        try:
            numbers = os.read(self._wakeup, 4096)
        except BlockingIOError:
            return
        for number in numbers:
            if number in (signal.SIGTERM, signal.SIGINT):
                self._stop_on_request(signal.Signals(number))

    def _stop_on_request(self, number: signal.Signals) -> None:
        self._stop_requests += 1
        if self._outcome.verdict is not None and self._stop_requests == 1:
            return  # they are ending already
        if not self._ranks_started:
            self._end(ExitCode.LEFT_ON_REQUEST, f"{number.name} before the ranks started")
        elif self._stop_requests == 1:
            log.info("asked to leave: the ranks save first", extra={"signal": number.name})
            self._guard.stand_down()
            self._ranks.signal(signal.SIGTERM)
            self._board.enter(PodPhase.SAVING, "leaving on request")
            if self._options.grace_seconds is not None:
                self._deadline = min(self._deadline, time.monotonic() + self._options.grace_seconds)
        else:
            self._deadline = 0.0

    def _hear_ranks(self) -> None:
        for message in self._ranks.received():
            self._guard.hear(message)
            if message.event == HostEvent.READY:
                self._host_ready = True
            elif message.event == HostEvent.ENDED:
                self._outcome.take_end(message.rank, integer(message.fields.get("code")) or 0)
            elif message.event == Event.FAILURE:
                self._outcome.take_last_words(message)
            elif message.event == Event.CHECK:
                if found := self._preflight.rank_finding(message):
                    self._show(found)
            elif not self._guard.hung:
                self._board.apply(message)

    def _bury(self, ended: Mapping[int, int]) -> None:
        if self._ranks.host_pid in ended and not self._over:
            self._hear_ranks()  # its last words, and those of its ranks, are still in the pipe
            self._outcome.take_end_of_host(ended[self._ranks.host_pid])
            self._over = True

    def _heed_gpus(self, ended: Mapping[int, int]) -> None:
        self._gpus.tend(ended, self._beat_at)
        # Until the checks are over the same fault is theirs to tell: one that was there before makes the node unfit (87).
        for symptom in self._gpus.take() if self._preflight.over else ():
            log.warning("%s", symptom.summary, extra={"probe": symptom.probe, "verdict": symptom.verdict})
            if symptom.verdict is GpuVerdict.HOLD:
                self._save_soon(symptom.summary)
            elif self._outcome.take_symptom(symptom):
                self._gpus.open_circuit(symptom)
                self._over = True
        self._board.health(self._gpus.health)

    def _save_soon(self, why: str) -> None:
        """Nothing is lost yet: have the ranks save, so that little is if it comes worse."""
        self._board.note(why)
        if self._ranks_started and self._beat_at >= self._save_again_at and self._outcome.verdict is None:
            self._save_again_at = self._beat_at + _SAVE_AGAIN_SECONDS
            self._ranks.signal(SAVE_SIGNAL)

    def _heed_preflight(self, ended: Mapping[int, int]) -> None:
        for found in self._preflight.findings(ended, time.monotonic()):
            self._show(found)
            if found.code and self._outcome.verdict is None:
                self._outcome.conclude(Verdict(code=found.code, summary=found.detail, gpu=found.gpu))
                self._over = True

    def _show(self, found: Finding) -> None:
        self._board.check(PreflightCheck(found.check, found.result, found.milliseconds, found.detail))
        facts = {"check": found.check, "result": found.result, "milliseconds": found.milliseconds}
        log.log(_LEVELS.get(found.result, logging.INFO), "%s", found.detail, extra=facts)

    def _start_ranks_when_due(self) -> None:
        if self._host_ready and self._preflight.over and not self._ranks_started and not self._over:
            self._ranks_started = True
            self._board.enter(PodPhase.STARTING)
            count = self._assignment.ranks_per_node
            left = self._preflight.rank_seconds(time.monotonic())
            check = {} if left is None else {rank_host.COLLECTIVE_SECONDS: f"{left:.3f}"}
            self._ranks.start(
                [
                    rank_environment.of_rank(self._assignment, local) | self._guard.rank_environment(local) | check
                    for local in range(count)
                ]
            )
            log.info("ranks started", extra={"ranks": count})

    def _check_progress(self) -> None:
        # The checks have a bound of their own, and the ranks wait for them.
        if self._outcome.verdict is None and self._preflight.over and (verdict := self._guard.judge()):
            self._outcome.conclude(verdict)
            self._guard.ask(self._ranks)
            self._deadline = time.monotonic() + ANSWER_SECONDS

    def _end_when_due(self) -> None:
        awaiting = self._outcome.awaits_gpu and self._gpus.watched
        if self._outcome.verdict is not None and not self._guard.hung:
            settling = _CORROBORATE_SECONDS if awaiting else _SETTLE_SECONDS
            self._deadline = min(self._deadline, time.monotonic() + settling)
        if not self._outcome.running and not awaiting:
            self._over = True
        elif time.monotonic() >= self._deadline:
            if self._guard.wake(self._ranks):
                self._deadline = time.monotonic() + WAKING_SECONDS
                return
            if self._outcome.verdict is None:  # nobody failed: the time to save is up
                killed = self._outcome.running
                self._end(ExitCode.LEFT_ON_REQUEST, f"left on request; {killed} ranks were killed unsaved")
            self._over = True

    # The end

    def _end(self, code: ExitCode, summary: str) -> None:
        """End for a reason that is none of the ranks'."""
        self._outcome.conclude(Verdict(code=code, summary=summary))
        self._over = True

    def _leave(self) -> int:
        """Leave nothing behind, and say how it ended."""
        if hung := self._guard.answer():
            self._outcome.conclude(hung)
        report, verdict = self._outcome.report, self._outcome.verdict
        copying = termination.copy_to_output(report, self._output) if report else None
        keeping = self._guard.keep(self._output) if hung else None
        self._ranks.kill()
        children.end_all(within=_SWEEP_SECONDS)
        if copying:
            copying.join(_REPORT_COPY_SECONDS)
        if keeping:
            keeping.join(KEEP_SECONDS)
        self._ranks.close()
        return verdict.code if verdict else ExitCode.DONE
