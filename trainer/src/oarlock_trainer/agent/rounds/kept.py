"""What this pod's node keeps in memory, from round to round: what its member tells of it, and what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_trainer.checkpoint.memory.held import folder_of, held, is_wanted

if TYPE_CHECKING:
    from oarlock_trainer.agent.ring.ring import Ring
    from oarlock_trainer.agent.rounds.member import Member
    from oarlock_trainer.agent.rounds.model import Order
    from oarlock_trainer.runtime.assignment import Assignment


class Kept:
    """Of one agent, whose `member` tells it. `ring`: None where nodes keep no state of each other."""

    def __init__(self, assignment: Assignment, member: Member, ring: Ring | None) -> None:
        job = assignment.job
        self._member, self._ring = member, ring
        self._ranks_per_node = assignment.ranks_per_node
        self._folder = None
        if is_wanted(job.recovery.memory.every_steps):
            self._folder = folder_of(job.job_uid, job.attempt, shared_memory=assignment.shared_memory)
        self._was_aside = False

    @property
    def ready(self) -> bool:
        """Whether nothing is on its way any more that this pod's ranks go on from."""
        return self._ring is None or self._ring.ready

    def come_back(self) -> None:
        """Have what a pod before this one had come back from the node that has a copy, once: that pod trains no more."""
        if self._ring:
            self._ring.come_back()

    def look(self) -> None:
        """Have the member tell what is there: while no rank is."""
        if self._folder:
            self._member.held = held(self._folder, ranks_per_node=self._ranks_per_node)

    def begin(self, order: Order | None = None) -> None:
        """Ranks start once `ready`: of this order's round, or (None) of the first."""
        if self._ring and order:
            members = tuple(place.rank for place in order.members)
            self._ring.begin(order.round.serial, order.step, members, made_by=order.made_by)
        elif self._ring:
            self._ring.begin(1, None)

    def went_on_from(self, step: int | None) -> None:
        """What the ranks have told of where they went on from."""
        if self._ring:
            self._ring.went_on_from(step)

    def stop(self) -> None:
        """No rank is left, so what is there stays as it is."""
        if self._ring:
            self._ring.stop()
        self.look()

    def turn(self) -> None:
        """Keep nothing from when a round has begun without this pod: it is of no use to a later one."""
        was, self._was_aside = self._was_aside, self._member.is_aside or self._member.outdated
        if self._ring and self._was_aside and not was:
            self._ring.forget()
            self.look()
