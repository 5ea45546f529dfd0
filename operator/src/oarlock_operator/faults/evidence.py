"""What stands on a node for everybody to read: the facts of a report, each in its own narrow form, and none of its prose.

A report's sentences may hold what a program printed, and with it a secret; names, numbers and readings of a GPU do not.
"""

from __future__ import annotations

import re

from oarlock_operator.faults.classify import Fault

_ODD = re.compile(r"[^A-Za-z0-9._:/+-]")
LONGEST = 64
MOST_READINGS = 4


def evidence_summary(fault: Fault) -> str:
    """Which pod, which GPU by all its names, and the readings, bounded."""
    pod, report = fault.pod, fault.pod.report
    parts = [f"pod {pod.name} on {pod.node}"]
    if report is None:
        return parts[0]
    if report.gpu:
        names = [_plain(report.gpu.uuid), f"serial {_plain(report.gpu.serial)}" if report.gpu.serial else ""]
        known = ", ".join(name for name in names if name)
        parts.append(f": GPU {report.gpu.index}" + (f" ({known})" if known else ""))
    if report.xid is not None:
        parts.append(f" XID {report.xid}")
    readings = [f"{_plain(one.probe)}={_plain(one.reading)}" for one in report.evidence[:MOST_READINGS]]
    return "".join(parts) + (f" [{', '.join(readings)}]" if readings else "")


def _plain(value: str) -> str:
    return _ODD.sub("", value)[:LONGEST]
