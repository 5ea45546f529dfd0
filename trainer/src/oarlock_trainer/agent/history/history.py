"""A pod's part of the history: every agent keeps its log, rank 0's the story, the others what befell themselves.

    history = History(assignment, environment, output=output)
    history.streams[LogStream.ERR](piece)       what ranks print, from any one thread a stream
    history.observe(status, report)             every turn of the agent's loop
    history.ended(report, status)               or, of an agent that fails without its loop, history.failed(report)
    history.close(within=1.0)                   last: writes what it can in that time

Nothing here waits for the storage, but `close`, and nothing raises: training never ends because of its history. What goes
wrong here switches the history off.
"""

from __future__ import annotations

import functools
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from oarlock_api.contract import history as layout
from oarlock_api.contract.environment import Variable
from oarlock_api.contract.exit_codes import ExitCode, FailureClass
from oarlock_api.contract.history import StoryLine, StoryType, parse_notes, parse_story
from oarlock_api.contract.kept_spec import SPEC, KeptSpec, parse_settings
from oarlock_api.contract.log_lines import LogStream, incarnation_begins
from oarlock_trainer.agent import logs
from oarlock_trainer.agent.history.clean_lines import CleanLines
from oarlock_trainer.agent.history.life import Life, Teller
from oarlock_trainer.agent.history.log_file import LogFile
from oarlock_trainer.agent.history.retention import prune
from oarlock_trainer.agent.history.story_file import StoryFile
from oarlock_trainer.agent.history.writer import FLUSH_SECONDS, HistoryWriter
from oarlock_trainer.agent.webhooks.redaction import secret_values, without_secrets
from oarlock_trainer.runtime import clock
from oarlock_trainer.runtime.atomic_write import write_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from oarlock_api.contract.report import Report
    from oarlock_api.contract.status import PodStatus
    from oarlock_trainer.runtime.assignment import Assignment

log = logging.getLogger(__name__)

_NOT_ONES_OWN = (FailureClass.PEER_LOST, FailureClass.REQUESTED)
"""What rank 0 tells for all."""

_NODES_IN_A_LINE = 100
_Arguments = ParamSpec("_Arguments")


def _harmless(
    method: Callable[Concatenate[History, _Arguments], None],
) -> Callable[Concatenate[History, _Arguments], None]:
    """An exception in the method is told once, and is the end of the history alone."""

    @functools.wraps(method)
    def guarded(self: History, /, *args: _Arguments.args, **keywords: _Arguments.kwargs) -> None:
        if self._over:
            return
        try:
            method(self, *args, **keywords)
        except Exception:
            told, self._over = self._over, True  # at first: the next line comes back to `_take`
            if not told:
                log.exception("the history ends here, training goes on")

    return guarded


class History:
    """Of one pod and attempt."""

    def __init__(
        self,
        assignment: Assignment,
        environment: Mapping[str, str],
        *,
        output: Path,
        flush_seconds: float = FLUSH_SECONDS,
        timestamp: Callable[[], str] = clock.timestamp,
    ) -> None:
        job, pod = assignment.job, assignment.pod
        self._over = False
        """Whether something went wrong here."""
        self._secrets = secret_values(environment)
        self._timestamp = timestamp
        self._teller = Teller(job=job.job_uid, attempt=pod.attempt, rank=pod.rank, node=pod.node)
        self._life = Life(self._teller)
        self._leads = pod.rank == 0
        self._notes = parse_notes(environment.get(Variable.HISTORY, ""))
        self._spec = self._kept_spec(assignment, environment.get(Variable.SPEC, "")) if self._leads else None
        self._keep = job.history.keep_attempts
        self._report: Report | None = None
        self._members = range(job.nodes)
        self._folder = output / layout.HISTORY
        self._attempt_folder = layout.attempt_folder(pod.attempt, job.job_uid)
        logs_folder = self._folder / layout.LOGS / self._attempt_folder
        faults = self._folder / layout.FAULTS / layout.faults_name(pod.attempt, job.job_uid, pod.rank)
        self._story = StoryFile(self._folder / layout.STORY if self._leads else faults)
        most = job.history.log_bytes
        self._writer = HistoryWriter(
            output,
            log=LogFile(logs_folder, pod.rank, most=most) if most else None,
            story=self._story,
            begin=self._begin,
            flush_seconds=flush_seconds,
        )
        self._lines = {stream: CleanLines(stream, self._secrets) for stream in LogStream}
        self.streams: Mapping[LogStream, Callable[[bytes], None]] = {
            stream: functools.partial(self._take, stream) for stream in LogStream
        }
        logs.also_to(lambda line: self._take(LogStream.AGENT, line.encode(errors="replace") + b"\n"))
        if pod.incarnation > 1:
            self._take(LogStream.NOTE, f"{incarnation_begins(pod.incarnation)}\n".encode())
        if self._leads:
            self._tell(
                self._teller.line(
                    StoryType.ATTEMPT_STARTED,
                    timestamp(),
                    nodes=job.nodes,
                    gpusPerNode=job.gpus_per_node,
                    image=self._notes.image or None,
                )
            )

    @property
    def begun(self) -> bool:
        """Whether the output is there, and takes what is written."""
        return self._writer.begun and not self._over

    @_harmless
    def observe(self, status: PodStatus, report: Report | None) -> None:
        """Tell what is new: of the attempt, where this is rank 0's pod, and of a verdict."""
        changes = self._life.changes(status, at=self._timestamp()) if self._leads else []
        if report is not None and report != self._report:
            self._report = report
            if self._is_to_be_told(report):
                changes.append(self._teller.fault(report))
        self._tell(*changes)

    @_harmless
    def gathered(self, nodes: Mapping[int, str]) -> None:
        """Tell which rank is on which node, once all are there, and who has moved: in several lines where there are many."""
        if nodes is self._life.nodes or not self._leads or not all(rank in nodes for rank in self._members):
            return
        ranks = sorted(self._life.move(nodes))
        for start in range(0, len(ranks), _NODES_IN_A_LINE):
            told = {str(rank): nodes[rank] for rank in ranks[start : start + _NODES_IN_A_LINE]}
            self._tell(self._teller.line(StoryType.GANG_COMPLETE, self._timestamp(), nodes=told))

    @_harmless
    def kept_stacks(self, name: str) -> None:
        """Tell where the ranks' stacks lie, by their name below the history's folder."""
        self._tell(self._teller.line(StoryType.STACKS, self._timestamp(), files=[name]))

    @_harmless
    def took_stacks(self, files: Sequence[str], message: str) -> None:
        """Tell of stacks that were asked for; of many files the first."""
        told = list(files)[:_NODES_IN_A_LINE]
        self._tell(self._teller.line(StoryType.STACKS, self._timestamp(), message=message, files=told))

    @_harmless
    def ended(self, report: Report | None, status: PodStatus) -> None:
        """Tell how the pod ends."""
        self.observe(status, report)
        if self._leads:
            self._tell(self._life.end(report, status, at=self._timestamp()))

    @_harmless
    def failed(self, report: Report) -> None:
        """Tell that the agent itself ends the pod, without its loop."""
        self._tell(self._teller.fault(report))
        if self._leads:
            why = {"reason": report.failure_class, "message": report.summary}
            self._tell(self._teller.line(StoryType.ENDED, self._timestamp(), **why, code=report.code))

    def close(self, within: float) -> None:
        """Write what is there."""
        self._end_lines()
        self._writer.close(within)

    def _is_to_be_told(self, report: Report) -> bool:
        if report.code == ExitCode.LEFT_ON_REQUEST:
            return False
        return self._leads or report.failure_class not in _NOT_ONES_OWN

    @_harmless
    def _end_lines(self) -> None:
        for stream in LogStream:
            self._writer.print(self._lines[stream].end(time=self._timestamp()))

    @_harmless
    def _take(self, stream: LogStream, piece: bytes) -> None:
        self._writer.print(self._lines[stream].take(piece, time=self._timestamp()))

    def _tell(self, *lines: StoryLine) -> None:
        if lines:
            self._writer.tell([self._clean(line).to_json() for line in lines])

    def _clean(self, line: StoryLine) -> StoryLine:
        message, data = without_secrets(line.message, self._secrets), without_secrets(dict(line.data), self._secrets)
        return replace(line, message=message, data=data)

    def _begin(self) -> None:
        """In the writer's thread: make room, keep the settings, and tell what the operator decided about earlier attempts."""
        if not self._leads:
            return
        prune(self._folder, keep=self._keep, own=self._attempt_folder)
        self._keep_settings()
        known = self._known_decisions() if self._notes.decisions else set()
        decisions = [line for line in self._notes.decisions if self._key(line) not in known]
        if decisions:
            self._story.append([self._clean(line).to_json() for line in decisions])

    def _keep_settings(self) -> None:
        if not self._spec:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        spec, self._spec = self._spec, None
        try:
            write_bytes(self._folder.parents[1] / SPEC, spec.to_json().encode())
        except OSError as error:  # the story and the logs are worth more, and may well go
            log.warning("the job's settings are not kept: %s", error)

    def _kept_spec(self, assignment: Assignment, told: str) -> KeptSpec | None:
        spec, job = without_secrets(parse_settings(told), self._secrets), assignment.job
        who = {"job": job.job_uid, "namespace": job.namespace, "name": job.job, "attempt": job.attempt}
        return KeptSpec(**who, time=self._timestamp(), spec=spec) if spec else None  # type: ignore[arg-type]

    def _known_decisions(self) -> set[tuple[str, int]]:
        known = set()
        for name in (layout.OLDER_STORY, layout.STORY):
            path = self._folder / name
            if path.exists():
                told = parse_story(path.read_bytes().decode(errors="replace"))
                known |= {self._key(line) for line in told if line.type == StoryType.DECISION}
        return known

    @staticmethod
    def _key(line: StoryLine) -> tuple[str, int]:
        return line.job, line.attempt
