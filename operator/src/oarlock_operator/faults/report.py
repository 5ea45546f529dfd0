"""A pod's termination message, trusted as far as it may be: about itself, in its own attempt, within bounds."""

from __future__ import annotations

from oarlock_api.contract.report import Report, parse_report
from oarlock_api.contract.wire import WireError


class NotTrustedError(ValueError):
    """A termination message that claims to be a report and is none of this pod's. The message says why."""


def trusted_report(message: str, *, attempt: int, rank: int, pod_uid: str) -> Report | None:
    """The report in a termination message, or None where it is none, but a log's end.

    Raises NotTrustedError where it is broken, or speaks of another pod or attempt: then the exit code alone speaks.
    """
    try:
        report = parse_report(message)
    except WireError as error:
        if message.lstrip().startswith("{") and '"podUid"' in message:
            raise NotTrustedError(f"it is broken: {error}") from error
        return None
    if (report.attempt, report.rank) != (attempt, rank) or report.pod_uid not in ("", pod_uid):
        raise NotTrustedError(f"it speaks of attempt {report.attempt}, rank {report.rank}, pod {report.pod_uid!r}")
    return report
