"""docs/reference/status.md: phases, conditions, reasons and metrics, from the code that gives them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase

from oarlock_api.generated import REPOSITORY, write_or_check
from oarlock_api.status import ConditionType, Phase
from oarlock_operator import metrics
from oarlock_operator.model.reasons import Reason

PAGE: Path = REPOSITORY / "docs/reference/status.md"
PHASES = {
    Phase.PENDING: "accepted or not, no attempt was begun",
    Phase.QUEUED: "in the queue of a gang system: no GPU is held, no deadline runs",
    Phase.STARTING: "a first gang, or one after a suspension, comes up: pods, checks, the model",
    Phase.RUNNING: "the ranks work: they train, or encode, or, where the trainer is the job's own, were started",
    Phase.RECOVERING: "the last gang was stopped by a fault, or for others; the next one is on its way to its first step",
    Phase.SUSPENDED: "spec.suspend is true and nothing runs",
    Phase.SUCCEEDED: "every rank ended well and every pod has stopped; final",
    Phase.FAILED: "the job is over and every pod has stopped; final",
}
CONDITIONS = {
    ConditionType.ACCEPTED: "this operator can run the job",
    ConditionType.SUSPENDED: "nothing runs because spec.suspend is true: now the spec may be changed",
    ConditionType.STORAGE_READY: "the output was written to; False after a storage fault",
    ConditionType.SCHEDULED: "every pod has a node; else the scheduler's words, or who does not take the pods",
    ConditionType.RUNNING: "the ranks work; else, where the kubelet has a reason, its words",
    ConditionType.RECOVERING: "a gang was stopped by a fault, or for others, and training has not begun again",
    ConditionType.DEGRADED: "it runs, but not as it should",
    ConditionType.SUCCEEDED: "the job has succeeded",
    ConditionType.FAILED: "the job has failed; reason and message say why",
    ConditionType.FINISHED: "the job is over, well or not: `kubectl wait --for=condition=Finished`",
    ConditionType.READY: "the ranks work, or the job has succeeded: what Helm and Flux wait for",
    ConditionType.RECONCILING: "it is on its way to that: it waits, starts or recovers",
    ConditionType.STALLED: "it will not come to that any more: the job has failed",
}


def page() -> str:
    """The page as Markdown."""
    return "\n".join(
        [
            "# What a TrainingJob says of itself",
            "",
            "Made by `make generate` from the operator's code. The fields of status: [trainingjob.md](trainingjob.md).",
            "",
            "## Phases",
            "A summary for people and simple tools; it may gain values.",
            "",
            *_table(("phase", "meaning"), ((phase.value, PHASES[phase]) for phase in Phase)),
            "",
            "## Conditions",
            "All stand in the status from the first write on.",
            "",
            *_table(("condition", "True means"), ((kind.value, CONDITIONS[kind]) for kind in ConditionType)),
            "",
            "## Reasons",
            "In status.reason, in conditions, in attempts[].reason and endReason, and as reasons of Events. A kubelet's or",
            "the scheduler's own reasons are passed on as they are.",
            "",
            *_table(("reason", "meaning"), ((reason.value, reason.meaning) for reason in sorted(Reason))),
            "",
            "## Metrics",
            "On /metrics of the operator. Counters end in _total, histograms have _bucket, _sum and _count.",
            "",
            *_table(("metric", "type", "labels", "meaning"), _metrics()),
            "",
        ]
    )


def _metrics() -> Iterable[tuple[str, ...]]:
    known = [each for each in vars(metrics).values() if isinstance(each, MetricWrapperBase)]
    for each in known:
        described = next(iter(each.describe()))
        labels = ", ".join(each._labelnames)  # noqa: SLF001 - there is no public way to ask
        yield (described.name, described.type, labels, described.documentation)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    line = "| " + " | ".join(head) + " |"
    return [line, "|" + " --- |" * len(head), *("| " + " | ".join(row) + " |" for row in rows)]


if __name__ == "__main__":
    sys.exit(write_or_check(module="oarlock_operator.process.reference", path=PAGE, content=page()))
