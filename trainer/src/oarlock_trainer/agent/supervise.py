"""The agent's life, from the container's start to its exit code.

    assignment -> rank host starts importing | status server | preflight              (all at once)
               -> host ready and preflight passed: ranks, or the job's own command in their place
               -> first bad ending: report at once, a moment for the others' errors, then the end of all
               -> no progress in time: report at once, a moment for the ranks' stacks, then the end of all
               -> a GPU is out of service: report at once, and the end of all
               -> a GPU needs new processes: report at once, a moment for a worse fault behind it, then the end of all
               -> another node's agent is gone: report at once that this pod is a victim, then the end of all
               -> exit code of the verdict

Where recovery.inPlace has it so, what new processes may mend ends the ranks alone (rounds/): they are killed on all nodes,
the agents meet at rank 0's, and the next round of ranks is forked from what is imported already. The same where a lost pod
is replaced by the operator: the others stand by, and the new one starts no ranks before the gang does.

One thread, one loop: signals, the ranks' channel and deadlines wake it. SIGTERM means "save and leave": ranks get it
and are waited for; before there are ranks it ends the pod at once; a second one (or the end of the grace time) kills. Where
lost pods are replaced, the others' ranks save with those of this pod, and it goes once they stand by.
"""

from __future__ import annotations

import logging
import math
import select
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_api.contract.environment import ROUND, TERM
from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.status import CheckResult, PodPhase, PreflightCheck
from oarlock_api.contract.wire import integer
from oarlock_trainer.agent import leaving, logs, parts, termination
from oarlock_trainer.agent.hangs.hang_guard import ANSWER_SECONDS, LOOK_SECONDS, WAKING_SECONDS
from oarlock_trainer.agent.history.history import History
from oarlock_trainer.agent.link.protocol import Answer, Ask, Left, MissedPod, PeerLost
from oarlock_trainer.agent.link.round_frames import Ordered
from oarlock_trainer.agent.parts import Options, PortTakenError
from oarlock_trainer.agent.ranks.ranks import StartError
from oarlock_trainer.agent.report.report_page import ENDED, SUCCEEDED
from oarlock_trainer.agent.rounds.model import FIRST, Kill, Leave, Report, Start
from oarlock_trainer.agent.rounds.standby import CLEARING_SECONDS, Standby
from oarlock_trainer.agent.rounds.surge import Surging, Waiting
from oarlock_trainer.agent.verdict import Verdict, is_failure
from oarlock_trainer.checkpoint.memory.held import resume_variables
from oarlock_trainer.ranks.rank_host import HostEvent
from oarlock_trainer.runtime import children, wakeup
from oarlock_trainer.runtime.assignment import COLLECTIVE_SECONDS, AssignmentError, read_assignment, read_pod
from oarlock_trainer.runtime.channel import Event

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oarlock_trainer.agent.rounds.model import Action, Order, Round
    from oarlock_trainer.preflight.finding import Finding
    from oarlock_trainer.runtime.assignment import Assignment
    from oarlock_trainer.runtime.channel import Message

log = logging.getLogger(__name__)

_SETTLE_SECONDS = 1.0
"""What the others get after the first bad ending: victims exit by themselves within it, and may name a root cause."""
_SETTLE_IN_PLACE_SECONDS = 0.2
"""The same where the gang waits for it to start anew: a worse cause costs another round."""
_TICK_SECONDS = 1.0
_HANGING_SECONDS = 15.0
_LEVELS = {CheckResult.WARNING: logging.WARNING, CheckResult.FAILED: logging.ERROR}
_ORDER_SECONDS = 2.0
"""What rank 0's agent gets to have the gang save for a pod that was asked to go. Then its own ranks are told."""
_NOTHING_TO_SAVE_SECONDS = 5.0
"""What ranks that have not begun to train get to leave by themselves: their GPUs are wanted by whoever asks."""


def run(options: Options, environment: Mapping[str, str]) -> int:
    """Run the pod and return its exit code. To be called once, from the process's main thread."""
    pod = read_pod(environment)
    logs.set_up(pod)
    history = None
    try:
        assignment = read_assignment(environment, in_pod=True)
        history = History(assignment, environment, output=Path(assignment.job.output_directory))
        return _Supervisor(assignment, options, environment, history).run()
    except AssignmentError as error:
        verdict = Verdict(code=ExitCode.CONFIGURATION, summary=str(error))
    except PortTakenError as error:
        verdict = Verdict(code=ExitCode.PREFLIGHT, summary=str(error))
    except Exception as error:
        log.exception("the agent failed")  # the kernel ends the ranks with it
        verdict = Verdict(code=1, summary=f"the agent itself failed: {type(error).__name__}: {error}")
    log.error("%s", verdict.summary, extra={"code": verdict.code})
    report = termination.report_of(verdict, pod, None)
    termination.write(report, options.termination_log)
    if history:
        history.failed(report)
        history.close(leaving.HISTORY_SECONDS)
    return verdict.code


class _Supervisor:
    """The loop's state: what runs, what is awaited until when."""

    def __init__(
        self, assignment: Assignment, options: Options, environment: Mapping[str, str], history: History
    ) -> None:
        self._grace_seconds = options.grace_seconds
        self._output = Path(assignment.job.output_directory)
        self._deadline = math.inf
        self._host_ready = self._ranks_started = self._over = False
        self._stop_requests = 0
        self._yield_by = self._leave_by = math.inf
        """Until when a pod that was asked to go waits for the order to save, and for the others to stand by."""
        self._beat_at = time.monotonic()
        started = parts.start(assignment, options, environment, history, now=self._beat_at, alive=self._is_alive)
        self._sources = started.sources
        self._wakeup = started.wakeup
        self._board = started.board
        self._link = started.link
        self._guard = started.guard
        self._ranks = started.ranks
        self._outcome = started.outcome
        self._rounds = started.rounds
        self._watch = started.watch
        self._webhooks = started.webhooks
        self._history = history
        self._gpus = started.gpus
        self._preflight = started.preflight
        self._page = started.page
        self._questions = started.questions
        self._standby = Standby(
            started.ranks,
            started.rounds,
            board=started.board,
            history=history,
            questions=started.questions,
            output=self._output,
        )
        # The gang goes on without it, and takes it in by an order.
        self._standby.on = assignment.pod.incarnation > 1 or assignment.is_spare
        self._places = tuple(range(assignment.job.nodes))
        """Ranks of the pods of the round that this pod was in last, by place."""
        log.info("listening", extra={"port": started.port})

    def run(self) -> int:
        self._hear_ranks()  # what needs no imports is ready from the start
        self._start_ranks_when_due()
        while not self._over:
            self._wait()
            self._heed_signals()
            self._hear_ranks()
            ended = children.reap()
            self._handle_end_of_host(ended)
            self._heed_gpus(ended)
            asked = self._heed_peers()
            self._heed_preflight(ended)
            self._heed_rounds()
            self._heed_questions(asked)
            self._heed_leaving()
            self._start_ranks_when_due()
            if not self._standby.on:
                self._check_progress()
                if not self._guard.hung:
                    self._questions.advance(self._beat_at, leaving=self._stop_requests > 0)
                self._end_when_due()
            self._webhooks.observe(self._board.status)
            self._history.gathered(self._link.nodes)
            self._history.observe(self._board.status, self._outcome.report)
            self._page.heed(ended)
            if self._history.begun:
                self._page.observe(self._board.status, self._beat_at)
        return self._leave()

    def _is_alive(self) -> bool:
        return time.monotonic() - self._beat_at < _HANGING_SECONDS

    # One turn of the loop

    def _wait(self) -> None:
        now = time.monotonic()
        seconds = min(
            _TICK_SECONDS, max(self._deadline - now, self._gpu_seconds(now), 0.0), self._rounds.seconds_left(now)
        )
        seconds = min(seconds, self._rounds.due_in)
        if self._standby.clearing or self._rounds.awaits_state:
            seconds = min(seconds, CLEARING_SECONDS)
        elif self._guard.hung and not self._standby.on:
            seconds = min(seconds, LOOK_SECONDS)
        if not self._preflight.over:
            seconds = min(seconds, self._preflight.seconds_left(now))
        select.select(self._sources, [], [], seconds)
        self._beat_at = time.monotonic()
        self._guard.advance(self._beat_at)
        if self._standby.on:
            self._board.beat()
        else:
            self._board.beat(hang_after_seconds=self._guard.allowed, silent_seconds=self._guard.silent)
        self._questions.watch(self._beat_at)

    def _heed_signals(self) -> None:
        for number in wakeup.taken(self._wakeup):
            if number in (signal.SIGTERM, signal.SIGINT):
                self._stop_on_request(signal.Signals(number))

    def _stop_on_request(self, number: signal.Signals) -> None:
        self._stop_requests += 1
        if self._stop_requests == 1 and self._leaves_alone():
            return
        self._rounds.give_up()
        if self._standby.on:
            if self._outcome.verdict is None:
                gang = "trains without this pod" if self._standby.aside else "starts its ranks anew"
                self._end(ExitCode.LEFT_ON_REQUEST, f"{number.name} while the gang {gang}")
            self._over = True  # for what ended its ranks, where that happened here
        elif self._outcome.verdict is not None and self._stop_requests == 1:
            self._outcome.tell()  # they are ending already
        elif not self._ranks_started:
            self._end(ExitCode.LEFT_ON_REQUEST, f"{number.name} before the ranks started")
        elif self._stop_requests == 1:
            log.info("asked to leave: the ranks save first", extra={"signal": number.name})
            self._leave_together(time.monotonic())
        else:
            self._deadline = 0.0

    def _leave_together(self, now: float) -> None:
        """The ranks save with all others of the gang, and all pods go."""
        self._guard.stand_down()
        self._outcome.leaving_since = now
        self._have_ranks_save("leaving on request")
        if self._grace_seconds is not None:
            self._deadline = min(self._deadline, now + self._grace_seconds)

    def _leaves_alone(self) -> bool:
        """Whether the gang saves, and goes on with the next pod of this rank."""
        ends = self._outcome.verdict is not None and not self._standby.on
        if not self._ranks_started or ends or not self._rounds.ask_to_leave():
            return False
        log.info("asked to leave: the gang saves first, and stands by for the next pod of this rank")
        self._outcome.leaving_since = now = time.monotonic()
        self._yield_by, self._leave_by = now + _ORDER_SECONDS, now + (self._grace_seconds or math.inf)
        return True

    def _heed_leaving(self) -> None:
        now = self._beat_at
        if self._over or not self._rounds.leaving:
            return
        if self._standby.on:
            self._over = self._rounds.may_leave(now) or now >= self._leave_by
            if self._over and self._outcome.verdict is None:
                self._outcome.conclude(Verdict(code=ExitCode.LEFT_ON_REQUEST, summary="left on request"))
        elif now >= self._leave_by:
            self._deadline = min(self._deadline, now)
        elif self._rounds.is_held:
            self._yield_by, self._outcome.leaving_since = now + _ORDER_SECONDS, now
            self._board.note("asked to go: it trains on until the next pod of its rank is ready")
        elif now >= self._yield_by and not self._rounds.yields:
            log.warning("rank 0's agent does not have the gang save: these ranks do, and the gang leaves")
            self._rounds.give_up()
            self._leave_together(now)

    def _have_ranks_save(self, message: str) -> None:
        """Ask the ranks to save at the next step boundary, and to end."""
        self._ranks.signal(signal.SIGTERM)
        if self._board.status.phase == PodPhase.STARTING and self._ranks.tells_phases:
            # Ranks that wait for a peer may be deep in native code, and there is nothing to save.
            self._deadline = min(self._deadline, time.monotonic() + _NOTHING_TO_SAVE_SECONDS)
        self._board.enter(PodPhase.SAVING, message)

    def _hear_ranks(self) -> None:
        for message in self._ranks.received():
            self._guard.hear(message)
            if message.event == HostEvent.READY:
                self._host_ready = True
            elif message.event == HostEvent.ENDED:
                self._outcome.take_end(message.rank, integer(message.fields.get("code")) or 0)
            elif message.event == HostEvent.CLEARED:
                self._standby.gone = True
            elif self._standby.gone:
                continue  # of ranks that are gone
            elif message.event == Event.FAILURE:
                self._outcome.take_error(message)
            elif message.event == Event.CHECK:
                if found := self._preflight.rank_finding(message):
                    self._show(found)
            else:
                self._hear_progress(message)

    def _hear_progress(self, message: Message) -> None:
        # What hanging ranks tell is that they were shaken awake, but a checkpoint is one.
        counts = message.event == Event.CHECKPOINT or not (self._guard.hung or self._standby.on)
        if counts and not self._questions.is_slowness(message, self._beat_at):
            self._board.apply(message)
            self._questions.hear(message, time.monotonic())

    def _handle_end_of_host(self, ended: Mapping[int, int]) -> None:
        pid = self._ranks.host_pid
        if pid is None or pid not in ended or self._over:
            return
        told = self._ranks.ended(ended[pid])
        self._hear_ranks()  # what it and its ranks told before is still in the pipe
        if not told:
            self._outcome.take_end_of_host(ended[pid])
            self._over = True

    def _heed_gpus(self, ended: Mapping[int, int]) -> None:
        if self._gpus.heed(ended, self._beat_at, checked=self._preflight.over, killed=self._standby.on):
            self._over = True

    def _heed_peers(self) -> list[Ask | Answer]:
        """All but questions, which may come with the very order that ranks are started by."""
        asked: list[Ask | Answer] = []
        for news in self._link.news():
            if isinstance(news, Ask | Answer):
                asked.append(news)
            elif isinstance(news, Report | Ordered | Surging | Waiting):
                self._rounds.hear(news, self._beat_at)
            else:
                self._heed_loss(news)
        return asked

    def _heed_questions(self, asked: Sequence[Ask | Answer]) -> None:
        for news in asked:
            has_ranks = self._ranks_started and not self._guard.hung and not self._standby.on
            self._questions.heed(news, self._beat_at, has_ranks=has_ranks)

    def _heed_loss(self, news: PeerLost | MissedPod | Left) -> None:
        if self._rounds.lose(news, time.monotonic(), standing_by=self._standby.on):
            return
        if self._standby.aside and isinstance(news, Left) and news.code == ExitCode.DONE:
            if news.rank == 0:
                self._end(ExitCode.DONE, "the gang is done, without this pod at last")
            return
        self._rounds.give_up()
        # Ranks that were asked to leave save together, or are bounded by their grace time.
        if not isinstance(news, Left) and not self._stop_requests:
            self._lose_peer(news.why)
        elif self._standby.on:  # nobody would start them
            self._lose_peer(f"pod {news.rank} has left")

    def _lose_peer(self, why: str) -> None:
        """The gang does not go on, in this attempt: leave, for a reason of this pod's own where there is one."""
        known = self._outcome.verdict
        # Ranks that saved and ended for another pod's sake have not left.
        if known is None or (known.code == ExitCode.LEFT_ON_REQUEST and not self._stop_requests):
            self._outcome.conclude(Verdict(code=ExitCode.PEER_LOST, summary=f"lost a peer: {why}"))
        self._outcome.tell()
        self._over = self._over or self._standby.on

    def _heed_rounds(self) -> None:
        verdict = self._outcome.verdict
        if (
            self._standby.on
            and verdict
            and not self._rounds.stays(verdict.code)
            and not self._gpu_seconds(self._beat_at)
        ):
            self._over = True  # something worse came to light meanwhile
        if self._over:
            return
        self._standby.advance()
        self._standby.on |= self._rounds.waits  # also before there were any ranks
        for action in self._rounds.turn(self._beat_at, self._board.status):
            self._obey(action)
        if self._standby.step_aside() and self._outcome.verdict:
            self._judge_anew()

    def _obey(self, action: Action) -> None:
        if isinstance(action, Start):
            self._begin_round(action.order)
        elif isinstance(action, Leave):
            self._rounds.give_up()
            own = self._outcome.verdict
            if own and own.summary in action.why:  # that this was not the first time, too
                self._outcome.conclude(replace(own, summary=action.why))
            self._lose_peer(action.why)
        elif self._standby.on or self._guard.hung:
            pass  # they end already, within moments
        elif isinstance(action, Kill):
            if action.code == ExitCode.HANG and self._outcome.verdict is None and self._guard.join():
                self._ask_hanging()  # nobody has missed its step here yet, and now nobody would
                return
            settle = _SETTLE_IN_PLACE_SECONDS if self._outcome.verdict else 0.0
            self._deadline = min(self._deadline, time.monotonic() + settle)
        elif self._outcome.verdict is None and (not self._stop_requests or self._rounds.leaving):
            log.info("the ranks save, and end: %s", action.why)
            self._have_ranks_save(action.why)

    def _begin_round(self, order: Order) -> None:
        log.info("round %d", order.round.number, extra={"why": order.why})
        self._standby.end()
        places = tuple(place.rank for place in order.members)
        self._ranks.be_of_round(places)
        # Where places have changed, or their number has, ranks wait for parts of the state that are copied first.
        self._judge_anew(order.step if places == self._places and not order.made_by else None)
        self._places = places
        self._deadline = math.inf
        self._start_ranks(order.round, resume_variables(order.step, order.made_by))

    def _judge_anew(self, step: int | None = None) -> None:
        """Whatever ended this pod's ranks before is over."""
        self._guard, self._outcome = self._watch(self._beat_at, step)
        self._gpus.judge_by(self._outcome, self._beat_at)

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
        able = self._host_ready and self._preflight.over and not self._ranks_started and not self._over
        if able and self._rounds.begins():
            seconds = self._preflight.rank_seconds
            self._start_ranks(FIRST, {} if seconds is None else {COLLECTIVE_SECONDS: f"{seconds:.3f}"})
        elif able and self._rounds.stands_by and self._board.status.phase == PodPhase.PREFLIGHT:
            self._board.enter(PodPhase.STANDBY)

    def _start_ranks(self, round_: Round, variables: Mapping[str, str]) -> None:
        """Start the ranks of this round, with these variables beyond those that name it."""
        named = {ROUND: str(round_.number), **({TERM: str(round_.term)} if round_.term > FIRST.term else {})}
        self._ranks_started = True
        self._board.enter(PodPhase.STARTING)
        try:
            self._ranks.start({**named, **variables})
        except StartError as error:
            self._end(ExitCode.CONFIGURATION, str(error))
        else:
            log.info("ranks started", extra={"ranks": len(self._ranks.numbers)})

    def _check_progress(self) -> None:
        # The checks have a bound of their own, and the ranks wait for them.
        if self._outcome.verdict is None and self._preflight.over and (verdict := self._guard.judge()):
            self._outcome.conclude(verdict)
            self._ask_hanging()

    def _ask_hanging(self) -> None:
        self._guard.ask()
        self._deadline = time.monotonic() + ANSWER_SECONDS

    def _gpu_seconds(self, now: float) -> float:
        """How long all else waits for a driver's last word. Whoever asks to leave twice waits for nobody."""
        return self._gpus.seconds_left(now) if self._stop_requests < 2 else 0.0

    def _end_when_due(self) -> None:
        now = time.monotonic()
        awaited = self._gpu_seconds(now) > 0
        verdict = self._outcome.verdict
        stays = verdict is not None and self._rounds.stays(verdict.code)
        if verdict is not None and not self._guard.hung:
            # The others need not wait for what settles here; of a hang each finds its own part.
            if stays:
                self._rounds.failed(verdict)
            elif is_failure(verdict.code) and not self._rounds.leaves_last(verdict, now):
                self._leave_link()
            victim = verdict.code == ExitCode.PEER_LOST
            self._deadline = min(
                self._deadline, now + (_SETTLE_IN_PLACE_SECONDS if stays and not victim else _SETTLE_SECONDS)
            )
        if awaited:
            return
        if not self._outcome.running:
            self._end_of_ranks(stays=stays)
        elif now >= self._deadline or self._has_answered(now):
            if self._guard.wake():
                self._deadline = time.monotonic() + WAKING_SECONDS
                return
            with_all = self._stop_requests > 0 and not self._rounds.leaving
            unsaved = self._outcome.verdict is None
            if unsaved and self._stop_requests:  # nobody failed: the time to save is up
                words = f"left on request; {self._outcome.running} ranks were killed unsaved"
                self._outcome.conclude(Verdict(code=ExitCode.LEFT_ON_REQUEST, summary=words))
            self._end_of_ranks(stays=not with_all and (stays or unsaved))

    def _has_answered(self, now: float) -> bool:
        """Whether nothing more is to be learned of a hang; before an attempt ends, each node is to find it by itself."""
        return self._guard.hung and self._rounds.stays(ExitCode.HANG) and self._guard.answered(now)

    def _end_of_ranks(self, *, stays: bool) -> None:
        if stays:
            self._deadline = math.inf
            if self._rounds.leaving:
                self._outcome.tell()  # while it is known what they did
            self._standby.begin(self._guard, self._outcome, self._beat_at)
            if self._rounds.leaving:
                self._board.note("asked to go: it waits for the others' ranks to end")
        else:
            self._over = True

    # The end

    def _end(self, code: ExitCode, summary: str) -> None:
        """End for a reason that is none of the ranks'."""
        self._outcome.conclude(Verdict(code=code, summary=summary))
        self._over = True

    def _leave_link(self, *, over: bool = False) -> None:
        """Tell the others of the gang that this pod leaves, and why. Only the first time says anything.

        `over`: none of its ranks is left.
        """
        if verdict := self._outcome.verdict:
            self._link.leave(verdict.code, verdict.summary, over=over)

    def _leave(self) -> int:
        """Leave nothing behind, and say how it ended."""
        hung = self._guard.answer()
        if hung:
            self._outcome.conclude(hung)
        self._outcome.tell()
        report, verdict = self._outcome.report, self._outcome.verdict
        if not (verdict and self._rounds.leaves_last(verdict, time.monotonic())):
            self._leave_link()
        last = leaving.LastWords(self._output, report, self._board.status)
        last.tell(self._webhooks, self._history)
        if hung:
            last.keep(self._guard, self._history)
        self._leave_link(over=leaving.sweep(self._ranks))
        last.wait()
        self._ranks.close()
        self._history.close(leaving.HISTORY_SECONDS)
        if self._history.begun and not self._stop_requests:  # whoever told the pod to go waits for no page
            done = verdict is None or verdict.code == ExitCode.DONE
            self._stop_requests += self._page.write_last(SUCCEEDED if done else ENDED, self._wakeup)
        self._webhooks.close(leaving.WEBHOOKS_SECONDS)
        # Where nobody has said a word the operator hears of it by this very end.
        if verdict and verdict.code == ExitCode.PEER_LOST and self._link.reason_told and not self._stop_requests:
            leaving.linger(self._wakeup)
        return verdict.code if verdict else ExitCode.DONE
