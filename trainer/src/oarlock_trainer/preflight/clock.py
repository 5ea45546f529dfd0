"""Find out whether this node's clock agrees with the others', without a time service: the shared output is the witness.

A folder that is made on a file server carries the server's time. So each node knows how far it is ahead of the same
clock, writes that down beside the others' readings, and can compare. Storage that stamps with the node's own clock (a
local disk, and file systems whose clients bring their own time) can tell nothing, and the check says so.

    more than  2 s   a warning. Of several faults the earliest is the cause, by the clocks of the nodes that tell of them
                     (a gang falls over within about a second): with clocks further apart a victim can look like it.
    more than 60 s   the node is unfit (87). No clock that is kept by anybody gets there. Certificates, Kerberos (5 min)
                     and S3 (15 min) fail hours into a run instead.

One reading alone can't tell whose clock is wrong. A node is refused only where two witnesses speak against it, the
server and the other nodes; where the others share its time, the server's clock is wrong, which is worth a warning.
"""

from __future__ import annotations

import secrets
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.layout import PRIVATE
from oarlock_api.contract.status import CheckResult
from oarlock_api.contract.wire import number
from oarlock_trainer.preflight.finding import Check, Finding
from oarlock_trainer.preflight.storage import Mount, find_mount
from oarlock_trainer.runtime.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WARN_SECONDS = 2.0
FAIL_SECONDS = 60.0

_STAMPED_BY_THE_SERVER = frozenset({"nfs", "nfs4", "cifs", "smb3"})
"""Of these it is known. Ceph, Lustre and most others take their clients' word for the time."""
_READINGS = f"{PRIVATE}/clocks"
"""Below the output: one note for each node."""
_PROBES = 3
_COARSE = 0.02
"""Seconds. Kernels stamp with the time of their last tick, at most 10 ms ago."""
_LONGEST_WAIT = 30.0
"""Seconds that a node whose clock looks wrong waits for the others' readings: pods of a gang start together."""


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """How far a node is ahead of the server: somewhere between `least` and `most` seconds. Negative = behind."""

    least: float
    most: float

    @property
    def middle(self) -> float:
        """Best guess."""
        return (self.least + self.most) / 2

    @property
    def certain(self) -> float:
        """Seconds ahead or behind (never negative) that no delay of the storage explains."""
        return max(self.least, -self.most, 0.0)


def find(
    *,
    directory: str,
    node: str,
    gang: str,
    rank: int,
    nodes: int,
    patience: float,
    clock: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
    mounts: Path = Path("/proc/self/mountinfo"),
) -> Finding:
    """The check as preflight orders it. `gang` is what the nodes of one attempt have in common and no others.

    `patience`: seconds that it may wait for other nodes' readings.
    """
    mount = find_mount(Path(directory), mounts)
    if mount.kind not in _STAMPED_BY_THE_SERVER:
        return _no_judgement(f"the output ({mount}) stamps files with this node's own clock")
    folder = Path(directory) / _READINGS
    notes = Notes(folder, gang=gang, own=rank, nodes=nodes)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own = measure(folder, clock)
        notes.write({"least": own.least, "most": own.most})
        others: list[ClockOffset] = []
        waited = 0.0
        while own.certain > FAIL_SECONDS and len(others) < nodes - 1 and waited < min(patience, _LONGEST_WAIT):
            pause(1.0)
            waited += 1.0
            own = measure(folder, clock)  # which also changes the folder: see Notes.read
            others = _readings(notes.read())
    except OSError as error:
        return _no_judgement(f"{error}: nothing could be written there")
    return judge(own, others, mount=mount, node=node)


def measure(folder: Path, clock: Callable[[], float]) -> ClockOffset:
    """The narrowest of a few readings of `clock` against the clock that stamps what is made in the folder.

    Making folders, not writing files: a client may hold a file's times itself for a while (NFS delegations).
    """
    readings = [_probe(folder / f"probe-{secrets.token_hex(8)}", clock) for _ in range(_PROBES)]
    return min(readings, key=lambda reading: reading.most - reading.least)


def _probe(made: Path, clock: Callable[[], float]) -> ClockOffset:
    before = clock()
    made.mkdir()
    after = clock()
    try:
        stamp = made.stat().st_mtime_ns
    finally:
        made.rmdir()
    # The server's clock stood at the stamp or up to a grain later, at some moment between before and after.
    grain = _COARSE if stamp % 10**9 else 1.0
    return ClockOffset(least=before - stamp / 1e9 - grain, most=after - stamp / 1e9)


def judge(own: ClockOffset, others: list[ClockOffset], *, mount: Mount, node: str) -> Finding:
    """What one node's reading says, beside those of the others. Pure."""
    off = own.certain
    if off <= WARN_SECONDS:
        within = f"within {max(abs(own.least), abs(own.most)):.2f} s"
        return Finding(
            check=Check.CLOCK, result=CheckResult.PASSED, detail=f"clock: {within} of the file server's ({mount})"
        )
    who = f"node {node}" if node else "this node"
    said = f"clock: {who} is {off:.1f} s {'ahead of' if own.middle > 0 else 'behind'} the file server ({mount})"
    mend = "Nodes and server need one time: run chrony or another NTP client on each (`chronyc tracking` tells)."
    if off <= FAIL_SECONDS:
        why = f"more than {WARN_SECONDS:g} s can make a fault's victim look like its cause"
        return Finding(check=Check.CLOCK, result=CheckResult.WARNING, detail=f"{said}; {why}. {mend}")
    if not others:
        why = "and no other node has left a reading to compare with, so it can't be told whose clock is wrong"
        return Finding(check=Check.CLOCK, result=CheckResult.WARNING, detail=f"{said}, {why}. {mend}")
    apart = own.middle - statistics.median(other.middle for other in others)
    if abs(apart) <= FAIL_SECONDS:
        why = f"and within {abs(apart):.1f} s of {len(others)} other nodes: the server's clock is wrong"
        return Finding(check=Check.CLOCK, result=CheckResult.WARNING, detail=f"{said}, {why}. {mend}")
    against = f"and {abs(apart):.1f} s away from {len(others)} other nodes, at most {FAIL_SECONDS:g} s are allowed"
    step = (
        "On this node: `chronyc makestep` sets the clock at once. spec.preflight.clock: false goes without the check."
    )
    return Finding(
        check=Check.CLOCK,
        result=CheckResult.FAILED,
        detail=f"{said} {against}. {mend} {step}",
        code=ExitCode.PREFLIGHT,
    )


def _readings(notes: Mapping[int, Mapping[str, Any]]) -> list[ClockOffset]:
    bounds = [(number(note.get("least")), number(note.get("most"))) for note in notes.values()]
    return [ClockOffset(least, most) for least, most in bounds if least is not None and most is not None]


def _no_judgement(why: str) -> Finding:
    return Finding(
        check=Check.CLOCK,
        result=CheckResult.NOT_SUPPORTED,
        detail=f"clock: {why}, so it can't tell whether the nodes' clocks agree",
    )
