"""Where things lie below a job's output directory, and how the fence and the checkpoints are named."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from oarlock_api.contract.wire import WireError, integer, parse_object, text

PRIVATE = ".oarlock"
OWNER = f"{PRIVATE}/owner"
FINISHED = f"{PRIVATE}/finished"
"""Of a job that came to its end: its UID, the attempt and the last step."""
REPORTS = f"{PRIVATE}/reports"
CHECKPOINTS = "checkpoints"
MODEL = "model"
PROFILE = "profile"
PROFILE_TRACE, PROFILE_CLOCK = "trace.json.gz", "clock.json"
"""How the files of a rank end, of the traces that spec.training.profile asks for."""
DATA_MANIFEST = "reports/data.json"
"""Which embeddings a job used, where they lie, how many and how large."""
EVALUATION_REPORT = "reports/evaluation.json"
"""Losses and pictures of a job with task Evaluate."""

REPORT_PAGE = "reports/index.html"
"""The job on one page, for people."""

_CHECKPOINT = re.compile(r"step-([0-9]{1,12})-a([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class Owner:
    """Who may commit into the output: the fence's content. The first round of an attempt is not written down.

    `round` is its serial (contract/rounds.py).
    """

    job_uid: str
    attempt: int
    round: int = 1

    @property
    def round_mark(self) -> str:
        """What names of unfinished files end with, so that no later round writes where a killed rank may still write."""
        return f"-r{self.round}" if self.round > 1 else ""

    def to_json(self) -> str:
        """One line."""
        later = {"round": self.round} if self.round > 1 else {}
        return json.dumps({"jobUid": self.job_uid, "attempt": self.attempt, **later})


def parse_owner(body: str) -> Owner:
    """Read the fence.

    Raises WireError where it is unreadable.
    """
    raw = parse_object(body, max_bytes=4096)
    attempt = integer(raw.get("attempt"))
    uid = text(raw.get("jobUid"), 64)
    if attempt is None or not uid:
        raise WireError("jobUid or attempt is missing")
    return Owner(job_uid=uid, attempt=attempt, round=integer(raw.get("round")) or 1)


def checkpoint_name(step: int, attempt: int) -> str:
    """Folder of a checkpoint: the attempt stands in the name, so that a fenced writer can't overwrite its successor's."""
    return f"step-{step}-a{attempt}"


def parse_checkpoint_name(name: str) -> tuple[int, int] | None:
    """(step, attempt) of a checkpoint's folder, or None for any other name."""
    found = _CHECKPOINT.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None
