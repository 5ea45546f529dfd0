"""spec.recovery.rules: a job's own exceptions from the table of faults. The first rule that fits decides; none cordons.

A victim is judged by its cause: a rule is asked about it only where no cause has spoken up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oarlock_api.contract.exit_codes import FailureClass
from oarlock_api.recovery import RecoveryAction, RecoveryMatch, RecoveryRule
from oarlock_operator.faults.classify import Avoid, Budget, Fault
from oarlock_operator.model.observation import Pod
from oarlock_operator.model.reasons import Reason


def ruled(fault: Fault, rules: Sequence[RecoveryRule]) -> Fault:
    """The fault as the first fitting rule wants it, unchanged where none fits."""
    rule = next((rule for rule in rules if _fits(rule.when, fault)), None)
    if rule is None:
        return fault
    # Whoever writes a rule for what is hopeless otherwise wants it tried again, within the program's own budget.
    budget: Budget = Budget.APPLICATION if fault.budget is Budget.NONE else fault.budget
    avoid = Avoid.NO
    match rule.action:
        case RecoveryAction.IGNORE:
            budget = Budget.VOLUNTARY
        case RecoveryAction.AVOID_NODE:
            # What only warns still works: better that node than none.
            avoid = Avoid.RATHER if fault.held else Avoid.STRICTLY
        case RecoveryAction.FAIL:
            budget = Budget.NONE
        case RecoveryAction.RESTART_PROCESS:
            pass
    message = f"{fault.message} (rule {rule.name}: {rule.action})"
    return replace(fault, message=message, budget=budget, avoid=avoid, cordon=False, rule=rule.name)


def warning(
    pod: Pod, message: str, probes: Sequence[str], rules: Sequence[RecoveryRule], *, avoided: bool
) -> Fault | None:
    """What a GPU that works on gives to think of as a fault, where the first rule that fits acts on it.

    Nothing is evidence against the node's hardware here: the pods save and leave. `avoided`: the job keeps off this node
    already, as far as it can.
    """
    said = f"pod {pod.name} on {pod.node}: {message}"
    fault = Fault(pod, FailureClass.GPU, Reason.GPU_WARNING, said, Budget.INFRASTRUCTURE, held=tuple(probes))
    rule = next((rule for rule in rules if _fits(rule.when, fault)), None)
    if rule is None or rule.action is RecoveryAction.IGNORE or (avoided and rule.action is RecoveryAction.AVOID_NODE):
        return None
    return fault


def _fits(when: RecoveryMatch, fault: Fault) -> bool:
    """Whether all that the rule names fits: what is absent fits everything but warnings, which are asked for by name."""
    report = fault.pod.report
    probes = fault.held or tuple(one.probe for one in (report.evidence if report else ()))
    if fault.held and when.verdict is None:
        return False
    code = fault.pod.ending.code if fault.pod.ending else None
    return (
        (when.xids is None or fault.xid in when.xids)
        and (when.classes is None or fault.failure_class in when.classes)
        and (when.exit_codes is None or code in when.exit_codes)
        and (when.node_names is None or fault.pod.node in when.node_names)
        and (when.verdict is None or when.verdict == fault.verdict)
        and (when.probes is None or not set(when.probes).isdisjoint(probes))
    )
