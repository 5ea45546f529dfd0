"""A hang in one sentence, and the rank that it comes from, where that can be told. Pure.

    no step for 60.4 s (60 s are allowed): ranks 0-2 at step 7, in all_reduce (distributed/distributed_c10d.py:2806);
    rank 3 at step 7, stopped by a signal, in take (data/batches.py:147)

Ranks of which the same is known share their words, so that eight of them fit into a report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.status import PodPhase
from oarlock_trainer.agent.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oarlock_trainer.agent.hangs.hang import Hang, Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen of a rank from outside: what keeps it from running, and where its main thread stands."""

    state: str = ""
    frame: str = ""


def verdict_of(hang: Hang, seen: Mapping[int, Seen]) -> Verdict:
    """The verdict over a hang, with what is known so far of its ranks."""
    alike: dict[str, list[int]] = {}
    for standing in hang.ranks:
        alike.setdefault(_stands(standing, seen.get(standing.rank, Seen())), []).append(standing.rank)
    ranks = "; ".join(f"{_numbers(numbers)} {where}" for where, numbers in alike.items())
    late = hang.overdue
    what = f"{_awaited(late)} for {late.silent:.1f} s ({late.allowed:g} s are allowed)"
    return Verdict(code=ExitCode.HANG, summary=f"{what}: {ranks}", first_error_rank=_culprit(hang, seen))


def _awaited(late: Standing) -> str:
    if late.phase is PodPhase.TRAINING:
        return "no step" if late.step is not None else "no first step"
    return f"no progress in {late.phase}"


def _stands(standing: Standing, seen: Seen) -> str:
    place = "before the first step" if standing.step is None else f"at step {standing.step}"
    if standing.phase is not PodPhase.TRAINING:
        place += f" ({standing.phase})"
    return ", ".join(part for part in (place, seen.state, seen.frame and f"in {seen.frame}") if part)


def _culprit(hang: Hang, seen: Mapping[int, Seen]) -> int | None:
    """The one rank of this node that can't run while the others can, or that is steps behind them; else nobody.

    Where ranks stand says little: all of them wait for each other, and in a GPU's queue rather than in Python.
    """
    unable = [standing.rank for standing in hang.ranks if seen.get(standing.rank, Seen()).state]
    if unable:
        return unable[0] if len(unable) == 1 else None
    newest = max(standing.step or 0 for standing in hang.ranks)
    behind = [standing.rank for standing in hang.ranks if (standing.step or 0) < newest]
    return behind[0] if len(behind) == 1 else None


def _numbers(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0, 2`, `ranks 0-6`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"ranks {ranks[0]}-{ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks))}"
