"""What each alert makes of which series: cases for promtool.

Samples come every half minute from minute 0 on, in promtool's notation: `0x9 1x9` is ten times 0, then ten times 1.
"""

from __future__ import annotations

from dataclasses import dataclass

Words = dict[str, str]
OPERATOR = 'job="oarlock/oarlock-operator"'
"""What the operator's monitor calls it."""
POD = 'job="oarlock/oarlock-jobs",namespace="team",pod="flux-1-0"'
"""What any pod is that says to be one of a job: it exports what it likes."""
JOB = 'namespace="team",training_job="flux"'
FLUX = {"namespace": "team", "training_job": "flux"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Series, and what an alert makes of them at a time: nothing, where it does not fire.

    `labels`: of the alert that fires, beside its own. `words`: of its annotations, those that have something put in.
    """

    alert: str
    series: dict[str, str]
    at: str
    fires: bool
    labels: Words | None = None
    words: Words | None = None


def fires(alert: str, series: dict[str, str], *, at: str, labels: Words | None = None, **words: str) -> Case:
    return Case(alert=alert, series=series, at=at, fires=True, labels=labels, words=words)


def silent(alert: str, series: dict[str, str], *, at: str) -> Case:
    return Case(alert=alert, series=series, at=at, fires=False)


def restarts(budget: str, *, pod: str = "a", **counts: str) -> dict[str, str]:
    """Restarts by reason, as the operator `pod` counts them."""
    return {
        f'oarlock_restarts_total{{{OPERATOR},budget="{budget}",reason="{reason}",pod="{pod}"}}': values
        for reason, values in counts.items()
    }


def xid(number: int, values: str, *, verdict: str = "RestartProcess", pod: str = "a") -> dict[str, str]:
    """A GPU's faults, as the operator `pod` counts them."""
    return {f'oarlock_gpu_faults_total{{{OPERATOR},xid="{number}",verdict="{verdict}",pod="{pod}"}}': values}


def phase(name: str, values: str) -> dict[str, str]:
    return {f'oarlock_job_phase{{{OPERATOR},{JOB},phase="{name}"}}': values}


def passes(by: str = OPERATOR, /, **results: str) -> dict[str, str]:
    return {f'oarlock_reconciles_total{{{by},result="{result}"}}': values for result, values in results.items()}


def health(state: str, values: str) -> dict[str, str]:
    return {f'oarlock_trainer_gpu_health{{{JOB},rank="3",state="{state}"}}': values}


PROGRESS = f"oarlock_job_last_progress_timestamp_seconds{{{OPERATOR},{JOB}}}"
DEGRADED = f'oarlock_trainer_degraded{{{JOB},rank="0",reason="NonFiniteLoss"}}'
STORAGE = f'oarlock_faults_total{{{OPERATOR},fault_class="Storage"}}'
REJECTED = f"oarlock_reports_rejected_total{{{OPERATOR}}}"
CORDONED = f"oarlock_nodes_cordoned_total{{{OPERATOR}}}"
LATCHED = f"oarlock_cordon_breaker_latched{{{OPERATOR}}}"
LEADS, WAITS = f'oarlock_leader{{{OPERATOR},pod="a"}}', f'oarlock_leader{{{OPERATOR},pod="b"}}'

CASES = {
    "no operator is found": fires("OarlockOperatorDown", {}, at="5m"),
    "no operator is found for minutes": silent("OarlockOperatorDown", {}, at="4m30s"),
    "two operators wait and none leads": fires("OarlockOperatorDown", {LEADS: "1x3 0x20", WAITS: "0x24"}, at="7m"),
    "no operator leads, and a pod says that it does": fires(
        "OarlockOperatorDown", {LEADS: "1x3 0x20", f"oarlock_leader{{{POD}}}": "1x24"}, at="7m"
    ),
    "one operator leads": silent("OarlockOperatorDown", {LEADS: "1x40", WAITS: "0x40"}, at="20m"),
    "the next operator leads within minutes": silent(
        "OarlockOperatorDown", {LEADS: "1x10 0x30", WAITS: "0x17 1x22"}, at="9m"
    ),
    "every fifth pass fails": fires(
        "OarlockOperatorFails",
        passes(ok="0+4x80", error="0+1x80"),
        at="26m",
        description="20% of them fail: the API server refuses or does not answer, or a job hits a bug.",
    ),
    "every fifth pass fails, and a pod says that a thousand did not": fires(
        "OarlockOperatorFails",
        passes(ok="0+4x80", error="0+1x80") | passes(POD, ok="0+1000x80"),
        at="26m",
        description="20% of them fail: the API server refuses or does not answer, or a job hits a bug.",
    ),
    "every twentieth pass fails": silent("OarlockOperatorFails", passes(ok="0+19x80", error="0+1x80"), at="40m"),
    "passes fail for minutes": silent("OarlockOperatorFails", passes(ok="0+4x80", bug="0x20 1+1x9 11x49"), at="20m"),
    "passes failed, and do no more": silent(
        "OarlockOperatorFails", passes(ok="0+4x180", error="0+1x120 120x60"), at="80m"
    ),
    "others write first": silent(
        "OarlockOperatorFails", passes(ok="0+4x80", conflict="0+4x80", error="0x80"), at="40m"
    ),
    "a job waits for half an hour": fires(
        "OarlockJobNotTraining",
        phase("Pending", "1x70"),
        at="31m",
        labels=FLUX,
        summary="team/flux has not been training for half an hour",
    ),
    "a job waits, starts and recovers for half an hour": fires(
        "OarlockJobNotTraining",
        phase("Pending", "1x30 0x50") | phase("Starting", "0x30 1x19 0x30") | phase("Recovering", "0x50 1x30"),
        at="31m",
        labels=FLUX,
        summary="team/flux has not been training for half an hour",
    ),
    "a job trains in between": silent(
        "OarlockJobNotTraining",
        phase("Pending", "1x30 0x50") | phase("Running", "0x30 1x3 0x46") | phase("Recovering", "0x34 1x46"),
        at="35m",
    ),
    "a job trains": silent("OarlockJobNotTraining", phase("Running", "1x80"), at="40m"),
    "no figures come": fires(
        "OarlockJobSilent",
        {PROGRESS: "0x60", **phase("Running", "1x60")},
        at="21m",
        labels=FLUX,
        summary="team/flux runs, and no figures come from it",
        description="The last ones came 21m 0s ago.",
    ),
    "figures are ten minutes old": silent("OarlockJobSilent", {PROGRESS: "0x60", **phase("Running", "1x60")}, at="10m"),
    "figures have been too old for two minutes": silent(
        "OarlockJobSilent", {PROGRESS: "0x60", **phase("Running", "1x60")}, at="17m"
    ),
    "figures come": silent("OarlockJobSilent", {PROGRESS: "0+30x60", **phase("Running", "1x60")}, at="30m"),
    "no figures come of a job that waits": silent(
        "OarlockJobSilent", {PROGRESS: "0x60", **phase("Running", "0x60"), **phase("Recovering", "1x60")}, at="30m"
    ),
    "six restarts for one reason": fires(
        "OarlockRestartsOften",
        restarts("application", Hang="0x9 1x9 2x9 3x9 4x9 5x9 6x70"),
        at="1h",
        labels={"budget": "application"},
        summary="6 restarts within an hour (application)",
    ),
    "the first restarts for each of six reasons": fires(
        "OarlockRestartsOften",
        {
            key: values
            for number, reason in enumerate(
                ("GPUFault", "PeerLost", "NodeLost", "StorageFault", "PreflightFailed", "Other"), start=10
            )
            for key, values in restarts("infrastructure", **{reason: f"0x{number} 1x90"}).items()
        },
        at="50m",
        labels={"budget": "infrastructure"},
        summary="6 restarts within an hour (infrastructure)",
    ),
    "three restarts, another operator, three restarts": fires(
        "OarlockRestartsOften",
        restarts("application", Hang="0x9 1x4 2x4 3x9 _x90")
        | restarts("application", pod="b", Hang="0x40 1x4 2x4 3x60"),
        at="40m",
        labels={"budget": "application"},
        summary="6 restarts within an hour (application)",
    ),
    "five restarts": silent("OarlockRestartsOften", restarts("application", Hang="0x9 1x9 2x9 3x9 4x9 5x80"), at="1h"),
    "three restarts of each budget": silent(
        "OarlockRestartsOften",
        restarts("application", Hang="0x9 3x99") | restarts("infrastructure", NodeLost="0x9 3x99"),
        at="50m",
    ),
    "six restarts in two hours": silent(
        "OarlockRestartsOften", restarts("application", Hang="0x9 1x39 2x39 3x39 4x39 5x39 6x39"), at="2h"
    ),
    "ten evictions": silent("OarlockRestartsOften", restarts("voluntary", Evicted="0x9 10x99"), at="30m"),
    "three storage faults": fires(
        "OarlockStorageFaults",
        {STORAGE: "0x9 1x9 2x9 3x90"},
        at="40m",
        summary="Outputs could not be read or written 3 times within an hour",
    ),
    "two storage faults": silent("OarlockStorageFaults", {STORAGE: "0x9 1x9 2x90"}, at="40m"),
    "three storage faults in two hours": silent("OarlockStorageFaults", {STORAGE: "0x9 1x99 2x99 3x40"}, at="2h"),
    "other faults": silent("OarlockStorageFaults", {STORAGE.replace("Storage", "GPU"): "0x9 9x90"}, at="40m"),
    "a job trains on badly": fires(
        "OarlockJobDegraded",
        {DEGRADED: "1x40"},
        at="16m",
        labels={**FLUX, "reason": "NonFiniteLoss"},
        summary="team/flux trains on, and something is wrong: NonFiniteLoss",
    ),
    "a job has been degraded for minutes": silent("OarlockJobDegraded", {DEGRADED: "1x40"}, at="14m"),
    "a job was degraded for minutes": silent("OarlockJobDegraded", {DEGRADED: "1x20 0x20"}, at="16m"),
    "four reports are not believed": fires(
        "OarlockReportsRejected",
        {REJECTED: "0x9 1x9 2x9 3x9 4x90"},
        at="40m",
        summary="4 reports of pods were not believed within an hour",
    ),
    "three reports are not believed": silent("OarlockReportsRejected", {REJECTED: "0x9 1x9 2x9 3x90"}, at="40m"),
    "four reports in three hours": silent("OarlockReportsRejected", {REJECTED: "0x9 1x99 2x99 3x99 4x40"}, at="170m"),
    "a node is cordoned": fires("OarlockNodeCordoned", {CORDONED: "0x9 1x90"}, at="10m"),
    "a pod says that nodes are cordoned": silent(
        "OarlockNodeCordoned", {CORDONED: "0x99", f"oarlock_nodes_cordoned_total{{{POD}}}": "0x9 5x90"}, at="10m"
    ),
    "a node was cordoned yesterday": silent("OarlockNodeCordoned", {CORDONED: "0x9 1x190"}, at="80m"),
    "the breaker is latched": fires("OarlockCordonBreakerLatched", {LATCHED: "0x9 1x9"}, at="6m"),
    "a pod says that the breaker is latched": silent(
        "OarlockCordonBreakerLatched", {LATCHED: "0x20", f"oarlock_cordon_breaker_latched{{{POD}}}": "1x20"}, at="6m"
    ),
    "the breaker is not latched": silent("OarlockCordonBreakerLatched", {LATCHED: "0x20"}, at="6m"),
    "an XID restarts three gangs": fires(
        "OarlockGPURestarts",
        xid(31, "0x9 1x200 2x200 3x200"),
        at="4h",
        labels={"xid": "31"},
        summary="XID 31 has restarted gangs 3 times within six hours",
    ),
    "an XID restarts two gangs": silent("OarlockGPURestarts", xid(31, "0x9 1x200 2x400"), at="4h"),
    "an XID restarts three gangs in nine hours": silent(
        "OarlockGPURestarts", xid(31, "0x9 1x499 2x499 3x40"), at="520m"
    ),
    "three XIDs restart a gang each": silent(
        "OarlockGPURestarts", xid(13, "0x9 1x200") | xid(31, "0x9 1x200") | xid(43, "0x9 1x200"), at="90m"
    ),
    "an XID takes three nodes away": silent(
        "OarlockGPURestarts", xid(79, "0x9 3x200", verdict="ReplaceNode"), at="90m"
    ),
    "a GPU warns": fires(
        "OarlockGPUHold",
        health("Hold", "1x20"),
        at="6m",
        labels={**FLUX, "rank": "3"},
        summary="A GPU of flux, pod 3, warns",
    ),
    "a GPU has warned for minutes": silent("OarlockGPUHold", health("Hold", "1x20"), at="4m"),
    "a GPU is healthy": silent("OarlockGPUHold", health("Hold", "0x20") | health("Healthy", "1x20"), at="8m"),
    "nobody watches a GPU": fires(
        "OarlockGPUUnmonitored",
        health("Unmonitored", "1x40"),
        at="16m",
        labels={**FLUX, "rank": "3"},
        summary="Nobody watches the GPUs of flux, pod 3",
    ),
    "nobody has watched a GPU for minutes": silent("OarlockGPUUnmonitored", health("Unmonitored", "1x40"), at="14m"),
    "nobody watched a GPU for minutes": silent(
        "OarlockGPUUnmonitored", health("Unmonitored", "1x20 0x20") | health("Healthy", "0x20 1x20"), at="16m"
    ),
}
