"""The process's memory: one JobMemory for each job, and what is remembered across jobs. It spares requests, and no more.

A job is forgotten here and nowhere else. What is kept across jobs is bounded as a whole, or outlives the job it came from.
Single-threaded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from oarlock_operator import metrics
from oarlock_operator.model.job_memory import JobMemory
from oarlock_operator.model.observation import Key
from oarlock_operator.nodes.troubled import TroubledNodes
from oarlock_operator.observe.gone_jobs import GoneJobs
from oarlock_operator.observe.outputs import Outputs
from oarlock_operator.pods.terminated_pods import TerminatedPods


@dataclass(frozen=True, slots=True)
class Memory:
    """Begins empty with each term of leadership."""

    jobs: dict[Key, JobMemory] = field(default_factory=dict)
    terminated: TerminatedPods = field(default_factory=TerminatedPods)
    troubled: TroubledNodes = field(default_factory=TroubledNodes)
    outputs: Outputs = field(default_factory=Outputs)
    gone: GoneJobs = field(default_factory=GoneJobs)

    def keys(self) -> set[Key]:
        """The jobs of which anything is remembered, even if only a pod that outlived its job."""
        return self.jobs.keys() | self.outputs.jobs_with_pods()

    def of(self, key: Key) -> JobMemory:
        """What is remembered of a job, whichever one had this name last."""
        return self.jobs.setdefault(key, JobMemory())

    def met(self, key: Key, uid: str) -> JobMemory:
        """A look found this job: its memory, a new one where another job had the name before."""
        if self.of(key).uid not in ("", uid):
            self.jobs[key] = JobMemory()
        self.jobs[key].uid = uid
        return self.jobs[key]

    def expects(self, key: Key) -> bool:
        """Whether a job may well be there under `key`: none was seen there, or one that was not seen to go."""
        return not self.gone.holds(self.of(key).uid)

    def training(self) -> int:
        """How many jobs train."""
        return sum(job.trains for job in self.jobs.values())

    def forget(self, key: Key, *, finished: bool = False) -> None:
        """A look found no job, or one that is over. Of a finished one stays what spares looking for its groups again."""
        job = self.jobs.pop(key, JobMemory())
        self.terminated.forget(*key)
        metrics.forget(*key)
        if finished:
            self.jobs[key] = JobMemory(uid=job.uid, groups_settled=job.groups_settled)
            return
        self.outputs.forget_job(key)
        if job.uid:
            self.gone.note(job.uid)
