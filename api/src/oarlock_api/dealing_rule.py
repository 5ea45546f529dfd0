"""The rule that every GPU gets a micro-batch of each step, where the job says how many samples a step has.

It refuses a size: of a new job, and of one that is to go on with another number of nodes. The models name the nearest size.
"""

from typing import Any

from oarlock_api.rules import Rule
from oarlock_api.training import Task


def _sizes(spec: Any) -> tuple[int, int]:
    """(micro-batches of a step, ranks of a node)."""
    return spec.training.effective_batch // spec.training.batch_size, max(spec.gpus_per_node, 1)


def _holds(spec: Any) -> bool:
    if spec.training is None or spec.training.effective_batch is None or spec.training.task != Task.TRAIN:
        return True
    micro_batches, ranks_per_node = _sizes(spec)
    return bool(spec.nodes * ranks_per_node <= micro_batches)


def _nearest(spec: Any) -> str:
    micro_batches, per_node = _sizes(spec)
    many = micro_batches >= per_node
    return (
        f"a step of {micro_batches} micro-batches on {spec.nodes * per_node} GPUs, at most "
        f"nodes: {micro_batches // per_node if many else 1} with gpusPerNode: {per_node if many else micro_batches}"
    )


EVERY_GPU_GETS_A_MICRO_BATCH = Rule(
    cel="!has(self.training) || !has(self.training.effectiveBatch) || self.training.task != 'Train' || "
    "self.nodes * (self.gpusPerNode > 0 ? self.gpusPerNode : 1) <= self.training.effectiveBatch / self.training.batchSize",
    message="training.effectiveBatch is too small for so many GPUs: take at most effectiveBatch / (batchSize x gpusPerNode) "
    "nodes, a smaller batchSize, or a larger effectiveBatch",
    holds=_holds,
    name=_nearest,  # without a twin in CEL: to the server a number as text costs as much as the longest text
)
