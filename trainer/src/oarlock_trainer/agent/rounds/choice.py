"""From which pods a job's rounds choose their members, by what the pod is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_api.contract.rounds import InPlace
from oarlock_api.contract.sections import Elastic
from oarlock_trainer.agent.rounds.membership import Membership

if TYPE_CHECKING:
    from oarlock_trainer.runtime.assignment import Assignment


def membership_of(assignment: Assignment) -> Membership:
    """All pods train where lost ones are not replaced, or where whoever says that it is one of them is believed."""
    job = assignment.job
    if job.recovery.in_place != InPlace.AUTO or not assignment.pod.replaces_pods or assignment.key is None:
        return Membership(nodes=job.nodes)
    elastic = job.elastic or Elastic(min_nodes=0)
    training, ranks_per_node = job.whole_training, assignment.ranks_per_node
    micro_batches = (training.get("effectiveBatch") or 0) // (training.get("batchSize") or 1)
    return Membership(
        nodes=job.nodes,
        spares=job.spares,
        least=elastic.min_nodes,
        patience=float(elastic.patience_seconds),
        can_be_dealt=lambda nodes: nodes * ranks_per_node <= micro_batches,  # as runtime/dealing.py has it
    )
