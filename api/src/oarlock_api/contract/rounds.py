"""Rounds: starts of all ranks within an attempt, counted from 1. How one ended, and which pods are waited for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.struck_gpu import StruckGpu, parse_struck_gpu
from oarlock_api.contract.wire import finite, integer, number, text

MAX_ROUNDS = 8
"""Ends of rounds that /status has: the newest."""
MAX_LOST = 8
"""Pods of one attempt that are replaced at once; where more are lost, all are made anew. /status has one more, to tell so."""
MAX_SPARES = 64
"""Pods of a gang beyond its `nodes`."""
MAX_WHY = 200
"""Characters: eight of them at their longest, every character escaped, leave room for the rest of /status."""
_MAX_WHY_LOST = 80
"""The same for nine lost pods."""
MOST = 1_000_000
"""Rounds of an attempt, and pods of a gang: what is above it is no number of them."""
MAX_MEMBERS = 4096
"""Nodes of a job: no round has more."""
_TERM = 1 << 20
"""Between the serials of two terms: no term has more than MOST rounds."""


def serial(term: int, number: int) -> int:
    """What no two rounds of an attempt have in common, and later ones have more of: what lies on storage is told apart by it.

    `term` is the incarnation of the rank 0 that led the round. A later one that heard of no pod of a round counts its
    `number` once more. Of the first term the serials are the numbers.
    """
    return (term - 1) * _TERM + number


def number_of(serial: int) -> int:
    """The round's number, for people."""
    return serial % _TERM


def words_of_ended(pods: Iterable[tuple[int, int]]) -> str:
    """Pods whose end was seen, as a question for /status has them: of each rank all before an incarnation."""
    return ".".join(f"{rank}-{before}" for rank, before in list(pods)[:MAX_LOST])


def ended_of(words: str) -> tuple[tuple[int, int], ...]:
    """The same: rank, and the first incarnation whose end was not seen. What is no such pair is left out."""
    pairs = (pair.partition("-") for pair in words.split(".")[:MAX_LOST])
    found = ((rank, before) for rank, _, before in pairs if rank.isascii() and before.isascii())
    return tuple((int(rank), int(before)) for rank, before in found if rank.isdecimal() and before.isdecimal())


@dataclass(frozen=True, slots=True)
class SurgePod:
    """The next pod of a rank, made while the one before it still trains. `seconds`: how long the gang may wait for it."""

    rank: int
    incarnation: int
    seconds: int


NO_SURGE = "none"


def words_of_surge(pods: Iterable[SurgePod]) -> str:
    """The surge pods that are made, as a question for /status has them. That there are none is said, too."""
    said = (f"{pod.rank}-{pod.incarnation}-{max(0, pod.seconds)}" for pod in list(pods)[:MAX_LOST])
    return ".".join(said) or NO_SURGE


def surge_of(words: str) -> tuple[SurgePod, ...] | None:
    """The same; None where nothing is said of them. What is no surge pod is left out."""
    if not words:
        return None
    parts = (one.split("-") for one in words.split(".")[:MAX_LOST])
    numbers = ([int(one) for one in part if one.isascii() and one.isdecimal()] for part in parts)
    return tuple(SurgePod(*found) for found in numbers if len(found) == 3 and max(found) <= MOST)


class InPlace(StrEnum):
    """Whether ranks start anew inside their living pods."""

    AUTO = "Auto"
    NEVER = "Never"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundEnd:
    """How a round ended, and what the next one began with. What is not known yet is None.

    `number` is that of the round that ended, `ended_at` RFC 3339 on the leader's clock, `rank` the pod whose fault it was,
    `code` an exit code of the contract or the program's own, `step` the last that the gang had finished. `resumed_step` is
    the step that the next round began with, `down_seconds` the time from the fault to that round's first new step;
    of that, a hang took `silent_seconds` until it was found, and then `start_wait_seconds` passed until the next round began.
    `from_memory`: it began with what the nodes had in memory.
    `lost_pod`: it ended because that pod was lost, not because ranks failed in a pod that lives. `gpu`: the GPU of that pod
    whose driver asked for new processes; `other_gpus`: drivers said so of other GPUs of the gang as well. `nodes`: the size
    of the next round where it is another one than this round's; `spare`: a spare took the place of a pod. A round that ended
    for no other reason than to grow has the code LEFT_ON_REQUEST, and `rank` 0.
    """

    number: int
    ended_at: str
    rank: int
    code: int
    why: str
    step: int | None = None
    resumed_step: int | None = None
    down_seconds: float | None = None
    silent_seconds: float = 0.0
    start_wait_seconds: float | None = None
    from_memory: bool = False
    lost_pod: bool = False
    gpu: StruckGpu | None = None
    other_gpus: bool = False
    nodes: int | None = None
    spare: bool = False

    def to_fields(self) -> dict[str, Any]:
        """As JSON writes it."""
        return {
            "number": self.number,
            "endedAt": self.ended_at[:40],
            "rank": self.rank,
            "code": self.code,
            "why": self.why[:MAX_WHY],
            "step": self.step,
            "resumedStep": self.resumed_step,
            "downSeconds": finite(self.down_seconds),
            **({"silentSeconds": finite(self.silent_seconds)} if self.silent_seconds else {}),
            **({} if self.start_wait_seconds is None else {"startWaitSeconds": finite(self.start_wait_seconds)}),
            **({"fromMemory": True} if self.from_memory else {}),
            **({"lostPod": True} if self.lost_pod else {}),
            **({"gpu": self.gpu.to_fields()} if self.gpu else {}),
            **({"otherGpus": True} if self.other_gpus else {}),
            **({} if self.nodes is None else {"nodes": self.nodes}),
            **({"spare": True} if self.spare else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LostPod:
    """A pod that rank 0's agent has lost, and whose next incarnation it waits for. `code` and `why` as of a RoundEnd.

    `lost_at`: since when, RFC 3339 on the leader's clock; empty where it is not told.
    """

    rank: int
    incarnation: int
    code: int
    why: str
    lost_at: str = ""

    def to_fields(self) -> dict[str, Any]:
        """As JSON writes it."""
        return {
            "rank": self.rank,
            "incarnation": self.incarnation,
            "code": self.code,
            "why": self.why[:_MAX_WHY_LOST],
            **({"lostAt": self.lost_at[:40]} if self.lost_at else {}),
        }


def parse_lost(raw: object) -> tuple[LostPod, ...]:
    """Read what JSON says, each rank once and in order; one whose numbers make no sense is left out."""
    told = [pod for one in (raw[: MAX_LOST + 1] if isinstance(raw, list) else ()) if (pod := _parse_lost(one))]
    by_rank = {pod.rank: pod for pod in told}
    return tuple(by_rank[rank] for rank in sorted(by_rank))


def _parse_lost(raw: object) -> LostPod | None:
    if not isinstance(raw, Mapping):
        return None
    rank, incarnation, code = (integer(raw.get(name)) for name in ("rank", "incarnation", "code"))
    if rank is None or incarnation is None or code is None:
        return None
    if not (0 <= rank < MOST and 0 < incarnation <= MOST and 0 < code < 256):
        return None
    return LostPod(
        rank=rank,
        incarnation=incarnation,
        code=code,
        why=text(raw.get("why"), _MAX_WHY_LOST),
        lost_at=text(raw.get("lostAt"), 40),
    )


def parse_members(raw: object) -> tuple[int, ...]:
    """Read the pods of a round by their places; none at all where one of them makes no sense, or stands there twice."""
    if not isinstance(raw, list) or len(raw) > MAX_MEMBERS:
        return ()
    ranks = tuple(rank for one in raw if (rank := integer(one)) is not None and 0 <= rank < MOST)
    return ranks if len(set(ranks)) == len(raw) else ()


def parse_rounds(raw: object) -> tuple[RoundEnd, ...]:
    """Read what JSON says, each round once and in order; one whose number, rank or code make no sense is left out."""
    told = [end for one in (raw[-MAX_ROUNDS:] if isinstance(raw, list) else ()) if (end := _parse(one))]
    by_number = {end.number: end for end in told}
    return tuple(by_number[number] for number in sorted(by_number))


def _parse(raw: object) -> RoundEnd | None:
    if not isinstance(raw, Mapping):
        return None
    ordinal, rank, code = (integer(raw.get(name)) for name in ("number", "rank", "code"))
    if ordinal is None or rank is None or code is None:
        return None
    if not (0 < ordinal <= MOST and 0 <= rank < MOST and 0 < code < 256):
        return None
    step, resumed = integer(raw.get("step")), integer(raw.get("resumedStep"))
    down, waited = number(raw.get("downSeconds")), number(raw.get("startWaitSeconds"))
    nodes = integer(raw.get("nodes"))
    return RoundEnd(
        number=ordinal,
        ended_at=text(raw.get("endedAt"), 40),
        rank=rank,
        code=code,
        why=text(raw.get("why"), MAX_WHY),
        step=step if step is not None and step >= 0 else None,
        resumed_step=resumed if resumed is not None and resumed >= 0 else None,
        down_seconds=down if down is not None and down >= 0 else None,
        silent_seconds=max(0.0, number(raw.get("silentSeconds")) or 0.0),
        start_wait_seconds=waited if waited is not None and waited >= 0 else None,
        from_memory=raw.get("fromMemory") is True,
        lost_pod=raw.get("lostPod") is True,
        # Of any other ending a GPU would be evidence against its node, which the pod itself has to give.
        gpu=parse_struck_gpu(raw.get("gpu")) if code == ExitCode.RESTART_PROCESS else None,
        other_gpus=raw.get("otherGpus") is True,
        nodes=nodes if nodes is not None and 0 < nodes <= MOST else None,
        spare=raw.get("spare") is True,
    )
