"""The attempts of a job as a table: why each began, where, which steps, and the seconds of each stage of its start."""

from __future__ import annotations

from typing import Any

STAGES = (
    ("detect", "DETECT"),
    ("decide", "DECIDE"),
    ("drain", "DRAIN"),
    ("schedule", "SCHEDULE"),
    ("start", "START"),
    ("firstStep", "FIRST STEP"),
)
WORDS = ("ATTEMPT", "WHY", "NODES", "STEPS")
"""Columns of words, to the left; figures stand to the right."""


def attempts_table(status: dict[str, Any]) -> str:
    """Lines of the table, for a finished job."""
    attempts = status["attempts"]
    header = ["ATTEMPT", "WHY", "NODES", "STEPS", *(title for _, title in STAGES), "TOTAL"]
    rows = [header]
    for index, attempt in enumerate(attempts):
        began = attempt.get("resumedFromStep", 0)
        following = attempts[index + 1] if index + 1 < len(attempts) else None
        if following is None:
            ended = (status.get("progress") or {}).get("totalSteps", "")
        else:
            ended = following.get("resumedFromStep", 0) + following.get("lostSteps", 0)
        stages = attempt.get("stageMilliseconds") or {}
        rows.append(
            [
                str(attempt["number"]),
                attempt.get("reason", "-"),
                ", ".join(attempt.get("nodeNames", [])),
                f"{began}-{ended}",
                *(_seconds(stages.get(name)) for name, _ in STAGES),
                _seconds(sum(value for value in stages.values() if value is not None)) + " s",
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if title in WORDS else cell.rjust(width)
            for title, cell, width in zip(header, row, widths, strict=True)
        ).rstrip()
        for row in rows
    )


def _seconds(milliseconds: float | None) -> str:
    return f"{milliseconds / 1000:.1f}" if milliseconds is not None else ""
