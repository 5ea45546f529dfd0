"""The agent's life, from the container's start to its exit code.

    assignment -> rank host starts importing | status server | storage preflight      (all at once)
               -> host ready and preflight passed: ranks
               -> first bad ending: report at once, a moment for the others' last words, then the end of all
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
from oarlock_api.contract.status import PodPhase
from oarlock_api.contract.wire import integer, text
from oarlock_trainer import rank_host
from oarlock_trainer.agent import (
    accelerate_config,
    cgroup,
    children,
    clock,
    logs,
    rank_environment,
    termination,
)
from oarlock_trainer.agent.assignment import ConfigurationError, read_assignment, read_pod
from oarlock_trainer.agent.local_ranks import LocalRanks
from oarlock_trainer.agent.preflight.storage_process import StorageProcess
from oarlock_trainer.agent.status_board import StatusBoard
from oarlock_trainer.agent.status_server import StatusServer
from oarlock_trainer.agent.verdict import Ending, Verdict, is_failure, judge
from oarlock_trainer.channel import Event
from oarlock_trainer.rank_host import HostEvent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oarlock_api.contract.report import Report
    from oarlock_trainer.agent.accelerate_config import Launch
    from oarlock_trainer.channel import Message

log = logging.getLogger(__name__)

_SETTLE_SECONDS = 1.0
"""What the others get after the first bad ending: victims exit by themselves within it, and may name a root cause."""
_TICK_SECONDS = 1.0
_HANGING_SECONDS = 15.0
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
    """The loop's state: who has ended, what is awaited until when, and the verdict as far as it is known."""

    def __init__(self, launch: Launch, options: Options, environment: Mapping[str, str]) -> None:
        assignment = launch.assignment
        self._assignment = assignment
        self._options = options
        self._output = Path(assignment.job.output_directory)
        self._endings: dict[int, Ending] = {}
        self._gone: set[int] = set()
        self._verdict: Verdict | None = None
        self._report: Report | None = None
        self._deadline = math.inf
        self._host_ready = self._ranks_started = self._over = False
        self._stop_requests = 0
        self._memory_kills_before = cgroup.out_of_memory_kills() or 0
        self._beat_at = time.monotonic()

        children.adopt_orphans()
        self._wakeup = _wake_on(signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        host_environment = {**environment, **rank_environment.shared(launch, environment)}
        host_environment |= rank_environment.of_rank(assignment, 0)  # what the host itself tells, its first rank tells
        self._ranks = LocalRanks(environment=host_environment, program=options.program, warm=options.warm)
        self._board = StatusBoard(
            assignment.pod, job_uid=assignment.job.job_uid, first_rank=assignment.first_rank, clock=clock.timestamp
        )
        self._storage = self._start_storage_check(environment)
        self._start_server()
        _render_accelerate_config(launch, options.run_directory)

    def run(self) -> int:
        while not self._over:
            self._wait()
            self._heed_signals()
            self._hear_ranks()
            self._bury(children.reap())
            self._check_storage()
            self._start_ranks_when_due()
            self._end_when_due()
        return self._leave()

    # What is started at once

    def _start_storage_check(self, environment: Mapping[str, str]) -> StorageProcess | None:
        job = self._assignment.job
        if not job.storage_check:
            return None
        return StorageProcess(
            self._output,
            min_free=job.min_free_bytes,
            seconds=job.preflight_timeout_seconds,
            environment=environment,
        )

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
            self._conclude(
                Verdict(
                    code=ExitCode.PREFLIGHT,
                    summary=f"port {port} of this node is taken ({error.strerror}): set spec.pod.ports.status",
                )
            )
            self._over = True
        else:
            log.info("listening", extra={"port": server.port})

    # One turn of the loop

    def _wait(self) -> None:
        seconds = min(_TICK_SECONDS, max(self._deadline - time.monotonic(), 0.0))
        if self._storage and self._storage.passed is None:
            seconds = min(seconds, self._storage.seconds_left)
        select.select([self._wakeup, self._ranks.channel_descriptor], [], [], seconds)
        self._beat_at = time.monotonic()
        self._board.beat()

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
        if self._verdict is not None and self._stop_requests == 1:
            return  # they are ending already
        if not self._ranks_started:
            self._conclude(Verdict(code=ExitCode.LEFT_ON_REQUEST, summary=f"{number.name} before the ranks started"))
            self._over = True
        elif self._stop_requests == 1:
            log.info("asked to leave: the ranks save first", extra={"signal": number.name})
            self._ranks.signal(signal.SIGTERM)
            self._board.enter(PodPhase.SAVING, "leaving on request")
            if self._options.grace_seconds is not None:
                self._deadline = min(self._deadline, time.monotonic() + self._options.grace_seconds)
        else:
            self._deadline = 0.0

    def _hear_ranks(self) -> None:
        for message in self._ranks.received():
            if message.event == HostEvent.READY:
                self._host_ready = True
            elif message.event == HostEvent.ENDED:
                self._gone.add(message.rank)
                self._take_ending(message.rank, integer(message.fields.get("code")) or 0)
            elif message.event == Event.FAILURE:
                self._take_last_words(message)
            else:
                self._board.apply(message)

    def _take_last_words(self, message: Message) -> None:
        code = integer(message.fields.get("code")) or 1
        ending = Ending(
            rank=message.rank, code=min(max(code, 1), 255), summary=text(message.fields.get("summary"), 1500)
        )
        self._endings.setdefault(message.rank, ending)
        self._judge_so_far()

    def _take_ending(self, rank: int, code: int) -> None:
        # A rank's own words say more than how the process then ended: crashes in teardown are common.
        self._endings.setdefault(rank, Ending(rank=rank, code=code))
        log.info("rank %d ended", rank, extra={"code": code})
        self._judge_so_far()

    def _bury(self, ended: Mapping[int, int]) -> None:
        if self._storage and self._storage.pid in ended:
            self._storage.ended(ended[self._storage.pid])
        if self._ranks.host_pid in ended and not self._over:
            self._hear_ranks()  # its last words, and those of its ranks, are still in the pipe
            if not self._over and self._verdict is None:  # the kernel killed its ranks with it
                self._take_ending(self._first_running_rank(), ended[self._ranks.host_pid] or 1)
            self._over = True

    def _first_running_rank(self) -> int:
        first = self._assignment.first_rank
        running = set(range(first, first + self._assignment.ranks_per_node)) - self._gone
        return min(running, default=first)

    def _check_storage(self) -> None:
        storage = self._storage
        if storage is None:
            return
        storage.give_up_when_due()
        if storage.passed is False:
            log.error("%s", storage.message)
            self._conclude(Verdict(code=ExitCode.STORAGE, summary=storage.message))
            self._over = True
        elif storage.passed:
            log.info("%s", storage.message)
            self._storage = None

    def _start_ranks_when_due(self) -> None:
        if self._host_ready and self._storage is None and not self._ranks_started and not self._over:
            self._ranks_started = True
            self._board.enter(PodPhase.STARTING)
            count = self._assignment.ranks_per_node
            self._ranks.start([rank_environment.of_rank(self._assignment, local) for local in range(count)])
            log.info("ranks started", extra={"ranks": count})

    def _end_when_due(self) -> None:
        if len(self._gone) == self._assignment.ranks_per_node:
            self._over = True
        elif time.monotonic() >= self._deadline:
            if self._verdict is None:  # nobody failed: the time to save is up
                left = self._assignment.ranks_per_node - len(self._gone)
                self._conclude(
                    Verdict(code=ExitCode.LEFT_ON_REQUEST, summary=f"left on request; {left} ranks were killed unsaved")
                )
            self._over = True

    # The end

    def _judge_so_far(self) -> None:
        """Judge what is known. The first failure is decisive enough to be written, later ones may correct it."""
        endings = list(self._endings.values())
        failed = any(is_failure(ending.code) for ending in endings)
        if failed:
            self._deadline = min(self._deadline, time.monotonic() + _SETTLE_SECONDS)
        if failed or len(endings) == self._assignment.ranks_per_node:
            kills = (cgroup.out_of_memory_kills() or 0) - self._memory_kills_before
            self._conclude(judge(endings, out_of_memory_kills=kills))

    def _conclude(self, verdict: Verdict) -> None:
        """Write the report now, unless it is what stands there already."""
        if verdict == self._verdict:
            return
        self._verdict = verdict
        failed = is_failure(verdict.code)
        if verdict.code == ExitCode.LEFT_ON_REQUEST:
            self._board.note(verdict.summary)
        else:
            self._board.enter(PodPhase.FAILED if failed else PodPhase.DONE, verdict.summary)
        log.log(logging.ERROR if failed else logging.INFO, "%s", verdict.summary, extra={"code": verdict.code})
        if verdict.code != ExitCode.DONE:
            self._report = termination.report_of(verdict, self._assignment.pod, self._board.status)
            termination.write(self._report, self._options.termination_log)

    def _leave(self) -> int:
        """Leave nothing behind, and say how it ended."""
        copying = termination.copy_to_output(self._report, self._output) if self._report else None
        self._ranks.kill()
        children.end_all(within=_SWEEP_SECONDS)
        if copying:
            copying.join(_REPORT_COPY_SECONDS)
        self._ranks.close()
        return self._verdict.code if self._verdict else ExitCode.DONE


def _wake_on(*numbers: signal.Signals) -> int:
    """Descriptor that becomes readable when one of the signals arrives; each byte read from it is a signal's number."""
    waking, wake = os.pipe()
    for descriptor in (waking, wake):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda _number, _frame: None)
    return waking


def _render_accelerate_config(launch: accelerate_config.Launch, folder: Path) -> None:
    path = folder / accelerate_config.FILE_NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(accelerate_config.render(launch))
    except OSError as error:
        log.info("%s is not written (%s): only `accelerate launch` would read it", path, error.strerror)
