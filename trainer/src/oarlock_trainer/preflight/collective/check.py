"""The collective check: before anything is loaded, the whole gang meets, reaches one another and adds up some numbers.

    connect    every rank waits for rank 0's store              who can't, while other nodes can, is cut off
    meet       one rank of each node says that it is here       who did not come is named by all that did
    reach      each node connects to each other node            who reaches none, while they reach one another, is cut off
    exercise   the ranks form their group and reduce            who is slow is told in milliseconds, the network by name

Pods come up apart, so the first two may take as long as ranks wait for one another without the check; the others no more than
spec.preflight.timeoutSeconds. A network that is slower than it should be trains, and the job is called degraded. A node that
is told to be cut off ends with 87, and is avoided; where nobody can be told to be, all end with 82, and nobody is blamed.
What can't be interrupted (torch joining, NCCL) runs in a thread that is left behind when the time is up: a rank ends
without waiting for its threads.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from oarlock_api.contract.layout import PRIVATE
from oarlock_api.contract.status import CheckResult, Degradation
from oarlock_trainer.engine import process_group
from oarlock_trainer.health.fabric import NcclLog
from oarlock_trainer.preflight.collective import exercise, reach
from oarlock_trainer.preflight.collective.meeting import Meeting
from oarlock_trainer.preflight.collective.node_names import NodeNames
from oarlock_trainer.preflight.collective.slow_network import hindrance, slow_network
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.background import Background
from oarlock_trainer.runtime.errors import LeftOnRequest, PeerLostError, UnfitError, lost_a_peer
from oarlock_trainer.runtime.heartbeat import Heartbeat
from oarlock_trainer.runtime.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.runtime.job import Job

CHECK = "collective"
_NOTES = f"{PRIVATE}/meeting"
"""Below the output: which nodes have reached rank 0, for those that can't and so can't ask there."""
_TURN_SECONDS = 0.05
_LOOK_SECONDS = 2.0
_APART_SECONDS = process_group.START_TIMEOUT
"""Nodes may come up apart by as much: images of 20 GB are pulled in minutes, however short the check itself is to be."""
_APART = 3
"""Or by this many times the check's seconds, where that is longer."""
_CUT_OFF_SECONDS = 20.0
"""How long others must have been able to do what this node can't: far longer than any order of starting explains."""
_PROBE_SECONDS = 5.0
_STORE_SECONDS = 10.0
_LONGER = f"If pods start further apart, spec.preflight.timeoutSeconds raises it: {_APART} times that are waited"
_LAST_WORDS_SECONDS = 2.0
"""Ranks that do not speak for their node leave it this long to say what it knows; so does rank 0, whose end takes the
store away, leave it to the others."""


def join(job: Job, *, go_on: Callable[[], None]) -> RankGroup:
    """Meet the other ranks, with the check where the job asks for it. `go_on` is called while waiting and may raise.

    Raises UnfitError where this node is cut off, PeerLostError where it can't be told who is.
    """
    if job.collective_seconds is None or job.rank_info.world_size == 1:
        return process_group.join(job)
    check = _Check(job, job.collective_seconds, go_on)
    try:
        ranks, times = check.run()
    except LeftOnRequest:
        raise
    except Exception as error:
        check.tell(CheckResult.FAILED, str(error))
        why = hindrance()
        if not isinstance(error, PeerLostError) and (lost_a_peer(error) or (why and isinstance(error, dist.DistError))):
            raise PeerLostError(f"the collective check lost a peer: {error}{why}") from error
        raise
    slow = slow_network(times, check.names, floor=job.file.preflight.min_bus_bandwidth)
    said = check.describe(times) + (f". {slow}" if slow else "")
    check.tell(CheckResult.WARNING if times.slow() or slow else CheckResult.PASSED, said)
    channel.send(channel.Event.DEGRADED, reason=Degradation.SLOW_NETWORK, message=slow)
    return ranks


class _Check:
    """One rank's part in the check, until `seconds` from now."""

    def __init__(self, job: Job, seconds: float, go_on: Callable[[], None]) -> None:
        rank_info = job.rank_info
        self._job = job
        self._go_on, self._beat = go_on, Heartbeat()
        self._node = rank_info.rank // rank_info.local_world_size
        self._nodes = rank_info.world_size // rank_info.local_world_size
        self._speaks = rank_info.local_rank == 0
        self._began = time.monotonic()
        self._seconds, self._apart = seconds, max(_APART_SECONDS, _APART * seconds)
        # Who does not speak for his node waits for all of it in one go.
        rest = 0.0 if self._speaks else seconds + _LAST_WORDS_SECONDS
        self._deadline = self._began + self._apart + rest
        self.names = NodeNames({self._node: job.node})
        gang = f"{job.file.job_uid}/{job.file.attempt}"
        self._notes = Notes(job.output / _NOTES, gang=gang, own=self._node, nodes=self._nodes)

    def run(self) -> tuple[RankGroup, exercise.Times]:
        """All of it."""
        # Rank 0's store object serves all others: the group keeps it alive.
        for_group = self._store(process_group.START_TIMEOUT, serves=True) if self._job.rank_info.is_leader else None
        address = self._connect()
        for_group = for_group or self._store(process_group.START_TIMEOUT)
        # A connection of its own: while the group joins, a thread waits inside the other one.
        meeting = Meeting(self._store(_STORE_SECONDS), own=self._node, nodes=self._nodes)
        if self._speaks:
            with reach.listen(address, backlog=self._nodes) as listener:
                self._meet(meeting, (address, listener.getsockname()[1]))
                self._reach(meeting)
        return self._exercise(meeting, for_group)

    def tell(self, result: CheckResult, detail: str) -> None:
        """Tell the agent how the check stands."""
        milliseconds = round((time.monotonic() - self._began) * 1000)
        channel.send(channel.Event.CHECK, name=CHECK, result=result, milliseconds=milliseconds, detail=detail)

    def describe(self, times: exercise.Times) -> str:
        """Say it with the milliseconds of each node, the slowest first."""
        slowest = sorted(times.ring, key=lambda node: -times.ring[node])
        each = ", ".join(f"{self.names.one(node)} {times.ring[node]:.0f}" for node in slowest)
        over = f", over {', '.join(sorted(set(times.networks.values())))}" if times.networks else ""
        said = (
            f"collective: {times.mebibytes} MiB were added up over {self._job.rank_info.world_size} ranks of "
            f"{self._nodes} nodes in {times.all_reduce:.0f} ms ({times.bus_bandwidth:.2g} GB/s of bus bandwidth{over}); "
            f"milliseconds to take them from the node before: {each}"
        )
        if slow := times.slow():
            said += f". Slow: {self.names.many(slow)}; look at the network of it and of the node before it"
        return said

    # The four parts

    def _connect(self) -> str:
        """Wait until rank 0's store can be reached; returns this node's address, as rank 0 sees it."""
        seen_at = looked_at = float("-inf")
        others: list[int] = []
        while True:
            with contextlib.suppress(OSError):
                limit = max(min(_LOOK_SECONDS, self._left()), _TURN_SECONDS)
                with socket.create_connection(self._job.rendezvous, timeout=limit) as probe:
                    address: str = probe.getsockname()[0]
                self._note(connected=True)
                return address
            if self._speaks and (self._late() or time.monotonic() - looked_at > _LOOK_SECONDS):
                looked_at = time.monotonic()
                if found := self._connected_others():
                    seen_at = seen_at if others else looked_at
                    others = found
            if others and (self._late() or time.monotonic() - seen_at > _CUT_OFF_SECONDS):
                raise UnfitError(
                    f"{self.names.one(self._node)} cannot reach rank 0 at {self._where()}, and "
                    f"{self.names.many(others)} can: it is cut off. Look at its network, and at the firewalls and "
                    "network policies that it is under"
                )
            if self._late():
                raise PeerLostError(
                    f"{self.names.one(self._node)} could not reach rank 0 at {self._where()} within {self._apart:.0f} s, "
                    "and no third node is known to have reached it: rank 0's pod has not started yet, or the network "
                    f"between the two is broken. {_LONGER}"
                )
            self._turn()

    def _meet(self, meeting: Meeting, address: tuple[str, int]) -> None:
        meeting.tell("here", [self._job.node, *address])
        met = self._await(lambda: meeting.is_told("here"))
        here = meeting.told("here")
        self.names.learn({node: str(name) for node, (name, *_) in here.items()})
        if not met:
            raise PeerLostError(
                f"{self.names.many(meeting.silent('here'))} did not come to the collective check within "
                f"{self._apart:.0f} s, {len(here)} of {self._nodes} nodes did: the others' pods have not "
                f"started yet, or cannot reach rank 0 at {self._where()}. {_LONGER}"
            )

    def _reach(self, meeting: Meeting) -> None:
        self._deadline = time.monotonic() + self._seconds
        addresses = {node: (str(host), int(port)) for node, (_, host, port) in meeting.told("here").items()}
        del addresses[self._node]
        meeting.tell("reach", reach.probe(addresses, seconds=min(_PROBE_SECONDS, max(self._left(), _TURN_SECONDS))))
        if not self._await(lambda: meeting.is_told("reach")):
            raise PeerLostError(
                f"{self.names.many(meeting.silent('reach'))} came to the collective check and then fell silent"
            )
        rows = {
            node: {int(peer): milliseconds for peer, milliseconds in row.items()}
            for node, row in meeting.told("reach").items()
        }
        pairs = reach.broken_pairs(rows)
        if not pairs:
            return
        meeting.tell("read", None)
        if self._job.rank_info.is_leader:
            self._await(lambda: meeting.is_told("read"), until=time.monotonic() + _LAST_WORDS_SECONDS)
        raise self._unreached(reach.cut_off(rows), pairs)

    def _unreached(self, blamed: list[int], pairs: list[tuple[int, int]]) -> UnfitError | PeerLostError:
        words = f"no TCP connection between {self.names.pairs(pairs)}"
        mend = "Look at firewalls, network policies and interfaces (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME)"
        if self._node in blamed:
            return UnfitError(f"{self.names.one(self._node)} is cut off from the other nodes: {words}. {mend}")
        who = f"{self.names.many(blamed)} cut off" if blamed else "it can't be told whose fault that is"
        return PeerLostError(f"nodes of this gang do not reach one another: {words}; {who}. {mend}")

    def _exercise(self, meeting: Meeting, store: TCPStore) -> tuple[RankGroup, exercise.Times]:
        log = NcclLog(os.environ) if self._speaks else None

        def work() -> tuple[RankGroup, exercise.Times]:
            ranks = process_group.join(self._job, store=store)
            return ranks, exercise.run(ranks, log.network if log else str)

        background = Background(work)
        if not self._await(lambda: background.ended):
            silent: list[int] = []
            with contextlib.suppress(RuntimeError):  # the store may be what is gone
                silent = meeting.silent("done")
            missing = f"; not done yet: {self.names.many(silent)}" if 0 < len(silent) < self._nodes else ""
            raise PeerLostError(
                f"all {self._nodes} nodes came, and their all-reduce did not end within {self._seconds:.0f} s{missing}. "
                "Nodes reach one another over TCP, so look at what NCCL uses beside it: run with NCCL_DEBUG=INFO in "
                f"spec.pod.env{hindrance()}"
            )
        ranks, times = background.result()
        if self._speaks:
            meeting.tell("done", None)
        if ranks.device.type == "cuda":
            torch.cuda.set_device(ranks.device)  # each thread has a current device of its own
        return ranks, times

    # Waiting, and words

    def _store(self, seconds: float, *, serves: bool = False) -> TCPStore:
        host, port = self._job.rendezvous
        return TCPStore(
            host, port, is_master=serves, timeout=timedelta(seconds=seconds), wait_for_workers=False, multi_tenant=True
        )

    def _await(self, fact: Callable[[], bool], *, until: float | None = None) -> bool:
        """Whether the fact came true in time."""
        while not fact():
            if time.monotonic() > (until or self._deadline):
                return False
            self._turn()
        return True

    def _turn(self) -> None:
        self._beat()
        self._go_on()
        time.sleep(_TURN_SECONDS)

    def _left(self) -> float:
        return self._deadline - time.monotonic()

    def _late(self) -> bool:
        return self._left() < 0

    def _note(self, *, connected: bool) -> None:
        if self._speaks:
            with contextlib.suppress(OSError):  # only evidence against somebody is lost with it
                self._notes.write({"connected": connected})

    def _connected_others(self) -> list[int]:
        """Nodes that have reached rank 0 over the network. Rank 0's own does not count: it has no way to go."""
        self._note(connected=False)  # which changes the folder: see Notes.read
        return sorted(node for node, note in self._notes.read().items() if note.get("connected") is True and node != 0)

    def _where(self) -> str:
        host, port = self._job.rendezvous
        return f"{host}:{port}"
