"""Storage of outputs that is mounted where the server runs, and whose jobs' outputs may lie there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oarlock.log_places import output_directory
from oarlock.parts import part
from oarlock_api.contract.beneath import Beneath
from oarlock_api.contract.wire import text


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Storage that is mounted at `folder`, for the jobs of one namespace whose spec.output names it: an export, or a claim.

    Without a namespace: for any job whose directory is there.
    """

    folder: Path
    namespace: str = ""
    server: str = ""
    path: str = ""
    claim: str = ""

    def named(self, place: Beneath) -> str:
        """How people know a place on it."""
        if not self.namespace:
            return str(place)
        outer = self.path.rstrip("/").split("/") if self.server else []
        return f"{self.server or self.claim}:{'/'.join((*outer, *place.parts)) or '/'}"

    def places(self, job: Mapping[str, Any]) -> list[Beneath]:
        """Where the job's directory may be; nowhere where this storage is none of its."""
        metadata, output = part(job, "metadata"), part(part(job, "spec"), "output")
        directory = output_directory(job)
        if not directory or "/" in directory or directory.startswith(".") or "\0" in directory:
            return []
        if not self.namespace:
            return [Beneath(self.folder, (directory,)), Beneath(self.folder)]
        below = self._below(output) if metadata.get("namespace") == self.namespace else None
        return [] if below is None else [Beneath(self.folder, (*below, directory))]

    def _below(self, output: Mapping[str, Any]) -> tuple[str, ...] | None:
        """The folders between this storage's root and that of the job's mount; None where it is no other's."""
        if self.claim:
            return () if part(output, "persistentVolumeClaim").get("claimName") == self.claim else None
        nfs = part(output, "nfs")
        here, there = _parts(self.path), _parts(text(nfs.get("path"), 4096))
        if nfs.get("server") != self.server or here is None or there is None or there[: len(here)] != here:
            return None
        return there[len(here) :]


def _parts(path: str) -> tuple[str, ...] | None:
    """The folders of an absolute path; None where it leads up or is none."""
    parts = tuple(name for name in path.split("/") if name)
    return None if not path.startswith("/") or {".", ".."} & set(parts) or "\0" in path else parts
