"""A pod's termination message, trusted as far as it may be: about itself, in its own attempt, within bounds."""

from __future__ import annotations

from oarlock_api.contract.report import Report, parse_report
from oarlock_api.contract.wire import WireError


def trusted_report(message: str, *, attempt: int, rank: int, pod_uid: str) -> Report | None:
    """The report in a termination message, or None where it is none, or speaks of another pod or attempt."""
    try:
        report = parse_report(message)
    except WireError:
        return None
    if (report.attempt, report.rank) != (attempt, rank) or report.pod_uid not in ("", pod_uid):
        return None
    return report
