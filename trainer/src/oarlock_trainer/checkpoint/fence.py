"""The fence: one small file that says which attempt of which job may commit into the output, and which round of it.

A new attempt raises it before anything else, and so does each later round; a writer reads it before each commit. That
check can race with a takeover, so the file also lists the checkpoints that were valid when the owner's attempt took over:
a later attempt trusts those and what the owner's attempt committed, and nothing that a writer of an attempt before slipped
in between. What an earlier round of the same attempt slips in counts: it is a whole state of the same training.

One export may serve several clusters, and each may have a job of one namespace and name. That such a job is gone is known
of the own cluster alone, so the file names the cluster as well.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.layout import FINISHED, OWNER, Owner, parse_owner
from oarlock_api.contract.rounds import number_of
from oarlock_api.contract.wire import WireError, text
from oarlock_trainer.runtime.atomic_write import write_bytes, write_json
from oarlock_trainer.runtime.errors import FencedError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_LISTED = 64
"""Checkpoint names that fit into the file's 4096 bytes."""


@dataclass(frozen=True, slots=True)
class Previous:
    """What the fence said before: its owner (None on a fresh output), their job and cluster, the valid checkpoints."""

    owner: Owner | None
    trusted: tuple[str, ...]
    job: str = ""
    cluster: str = ""


class Fence:
    """The hold of one round of an attempt on an output directory."""

    def __init__(self, output: Path, owner: Owner, *, job: str = "", gone: str = "", cluster: str = "") -> None:
        """Holds nothing until `check_free` and `take`.

        `gone`: the job of this namespace/name that was there before in this `cluster`, if it is known to be over, finished
        or not. Without a cluster nothing is known of any.
        """
        self._job = job
        self._cluster = cluster
        self._gone = gone
        self._output = output
        self._path = output / OWNER
        self.owner = owner

    def previous(self) -> Previous:
        """What stands there now. An unreadable file (it is written in one piece) counts as none."""
        try:
            body = self._path.read_text(encoding="utf-8")
            owner = parse_owner(body)
        except (FileNotFoundError, UnicodeDecodeError, WireError):
            return Previous(None, ())
        said = json.loads(body)
        listed = said.get("valid", [])
        trusted = tuple(name for name in listed if isinstance(name, str))
        return Previous(owner, trusted, text(said.get("job"), 512), text(said.get("cluster"), 64))

    def check_free(self, previous: Previous) -> None:
        """Raise FencedError where the output belongs to a newer attempt or round, or to another job that has not finished."""
        owner = previous.owner
        if owner is None or owner == self.owner:
            return
        if owner.job_uid == self.owner.job_uid:
            if (owner.attempt, owner.round) > (self.owner.attempt, self.owner.round):
                raise FencedError(f"{_place(owner)} owns the output {self._output}, this is {_place(self.owner)}")
            return
        same_name = bool(self._gone) and previous.job == self._gone
        known_gone = same_name and bool(self._cluster) and previous.cluster == self._cluster
        if not known_gone and self._finished_uid() != owner.job_uid:
            where = f" of this name in {self._other_cluster(previous)}" if same_name else ""
            raise FencedError(
                f"the output {self._output} belongs to another job{where} (UID {owner.job_uid}, attempt {owner.attempt}) "
                f"that has not finished: give this job another output.directory, or, if that job is gone for good, remove "
                f"{self._path}"
            )

    def take(self, valid: Iterable[str]) -> None:
        """Own the output from now on; `valid` are the checkpoints that count so far, newest first."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        content: dict[str, Any] = json.loads(self.owner.to_json())
        content["job"] = self._job
        content["cluster"] = self._cluster
        content["valid"] = list(valid)[:_LISTED]
        write_bytes(self._path, (json.dumps(content) + "\n").encode())

    def renew(self) -> None:
        """Own the output as an earlier round of this attempt does.

        Raises FencedError where anybody else owns it: what is gone on from is then not to be committed.
        """
        previous = self.previous()
        owner = previous.owner
        if owner is None or owner.round > self.owner.round or replace(owner, round=self.owner.round) != self.owner:
            raise self._taken_over(owner)
        self.take(previous.trusted)

    def check(self) -> None:
        """Raise FencedError where somebody else owns the output now. To be called before every commit."""
        if (owner := self.previous().owner) != self.owner:
            raise self._taken_over(owner)

    def finish(self, step: int) -> None:
        """Mark the job as finished: another job may take the output over."""
        self.check()
        facts = {"jobUid": self.owner.job_uid, "attempt": self.owner.attempt, "step": step}
        write_json(self._output / FINISHED, facts)

    def _taken_over(self, owner: Owner | None) -> FencedError:
        who = f"{_place(owner)} of job UID {owner.job_uid}" if owner else "somebody who removed the fence"
        return FencedError(f"the output {self._output} was taken over by {who}")

    def _other_cluster(self, previous: Previous) -> str:
        if self._cluster and previous.cluster:
            return "another cluster"
        return f"a cluster that {'the fence' if self._cluster else 'this pod'} cannot name"

    def _finished_uid(self) -> str:
        try:
            found = json.loads((self._output / FINISHED).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return ""
        return str(found.get("jobUid", "")) if isinstance(found, dict) else ""


def _place(owner: Owner) -> str:
    return (
        f"round {number_of(owner.round)} of attempt {owner.attempt}" if owner.round > 1 else f"attempt {owner.attempt}"
    )
