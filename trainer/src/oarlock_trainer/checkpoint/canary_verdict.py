"""Who is to blame where the canary shows that nodes do not share their storage: pure, and the same on every rank.

Who cannot write where others can, or is the one that most others speak against, ends with 84, so that it is avoided, and
the others as its victims with 82.
Where no most nodes agree, or the storage has no room, all end with 84. Every message names the nodes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oarlock_trainer.runtime.errors import PeerLostError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from oarlock_trainer.checkpoint.format import FileFacts

_DISCORD = {
    True: "do not find one another's files in {where}{said}: the storage is not shared, or each node keeps a copy of its "
    "own for too long. Take a claim with ReadWriteMany from a class for shared storage, or an NFS export.",
    False: "do not read in {where} what was written there{said}: a node keeps old copies for too long, or the storage "
    "damages what it is given. Mount it alike on all nodes, and look into the storage's own log.",
}
"""What is said of all nodes where most do not agree: whether they find other files than others do, or only read otherwise."""


@dataclass(frozen=True, slots=True)
class Written:
    """What the node of one rank wrote."""

    rank: int
    node: str
    file: FileFacts


@dataclass(frozen=True, slots=True)
class Failed:
    """Why the node of one rank could not write. `full`: because nobody can, the storage has no room."""

    rank: int
    node: str
    words: str
    full: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """What the node of one rank sees: the watched files that it finds, and what is wrong with what it read.

    `doubted` is what others read of its own file.
    """

    rank: int
    node: str
    found: frozenset[str] = frozenset()
    complaint: str = ""
    doubted: str = ""


def judge_writing(failed: Sequence[Failed], *, nodes: int, rank: int) -> None:
    """What the node of `rank` makes of those of `nodes` that could not write. Raises StorageError and PeerLostError."""
    if not failed:
        return
    said = "; ".join(f"{name(each)}: {each.words}" for each in failed)[:1024]
    others = nodes - len(failed)
    if not others or any(each.full for each in failed):
        raise StorageError(f"output: {said}")
    said += f". The other {others} nodes can write there" if others > 1 else ". The other node can write there"
    if rank not in [each.rank for each in failed]:
        raise PeerLostError(f"output: {said}")
    raise StorageError(f"output: {said}: compare `findmnt` on the nodes, and mount it anew.")


def weigh(views: Sequence[View], disputed: Iterable[Written], readings: Sequence[Mapping[str, str]]) -> list[View]:
    """The views, with the blame for a disputed file on who wrote it where most others read it otherwise, too.

    `readings` has for each view what is wrong with each disputed file as its node reads it, by name.
    """
    doubted: dict[int, str] = {}
    complaints = {view.rank: view.complaint for view in views}
    kept: dict[int, str] = {}
    for written in disputed:
        heard = {
            view.rank: reading[written.file.name]
            for view, reading in zip(views, readings, strict=True)
            if view.rank != written.rank  # its own memory may hold what the storage does not
        }
        bad = {rank: complaint for rank, complaint in heard.items() if complaint}
        if len(heard) > 1 and 2 * len(bad) > len(heard):
            doubted[written.rank] = f"{len(bad)} of {len(heard)} others say: {next(iter(bad.values()))}"
            complaints |= dict.fromkeys(bad, "")
        else:
            kept |= bad
    complaints |= kept  # last: who is right about one file may be wrong about another
    return [replace(view, complaint=complaints[view.rank], doubted=doubted.get(view.rank, "")) for view in views]


def judge(views: Sequence[View], *, rank: int, where: str) -> None:
    """What the node of `rank` makes of all nodes' views. Raises StorageError where it is the odd one, else PeerLostError.

    Where no most nodes agree all raise StorageError.
    """
    common, _ = Counter(view.found for view in views).most_common(1)[0]
    apart = [view for view in views if view.found != common]
    lost = apart or [view for view in views if view.complaint or view.doubted]
    if not lost:
        return
    # In a large gang most nodes are not watched. If all that unites them is that they find nothing, they share nothing.
    agreeing = len(views) - len(lost) if common or not any(view.found for view in views) else 0
    if agreeing <= len(lost):
        said = next((f" ({view.complaint or view.doubted})" for view in views if view.complaint or view.doubted), "")
        raise StorageError(f"output: {_names(views)} {_DISCORD[bool(apart)].format(where=where, said=said)}")
    said = "; ".join(_charge(view, where, apart=bool(apart)) for view in lost)[:1024]
    own = next((view for view in lost if view.rank == rank), None)
    if own is None:
        raise PeerLostError(f"output: {said}")
    agree = (
        "find one another's files: is this one mounting something else?" if apart else "agree on what they see there."
    )
    raise StorageError(
        f"output: {_charge(own, where, apart=bool(apart))}. The other {agreeing} nodes {agree} Compare `findmnt` on the "
        "nodes, and mount it anew."
    )


def name(who: View | Written | Failed) -> str:
    """A node by its name and the rank that speaks for it."""
    return f"node {who.node} (rank {who.rank})" if who.node else f"the node of rank {who.rank}"


def _charge(view: View, where: str, *, apart: bool) -> str:
    if view.doubted and not view.complaint:
        return f"{name(view)} does not write what the other nodes read in {where} ({view.doubted})"
    said = f" ({view.complaint})" if view.complaint else ""
    return f"{name(view)} does not {'find' if apart else 'read'} what the other nodes wrote into {where}{said}"


def _names(nodes: Iterable[View]) -> str:
    return ", ".join(map(name, nodes))[:512]
