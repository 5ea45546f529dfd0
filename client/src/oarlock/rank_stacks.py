"""Stacks that were asked for, as the agents' log lines have them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from oarlock.logs import NOTE, LogLine
from oarlock_api.contract.wire import integer, text

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStacks:
    """The stacks of one rank: all of its Python threads, the main one last; the end of them, where they are long."""

    rank: int
    pod: str
    stacks: str


def of_request(name: str, lines: Iterable[LogLine]) -> list[RankStacks]:
    """Those of one request, by rank. A pod whose log could not be read is warned of."""
    found: dict[int, RankStacks] = {}
    for line in lines:
        if line.kind == NOTE:
            log.warning("%s", line.text)
            continue
        try:
            said = json.loads(line.text)
        except ValueError:
            continue
        if isinstance(said, dict) and said.get("request") == name and (rank := integer(said.get("ofRank"))) is not None:
            found[rank] = RankStacks(rank=rank, pod=line.pod, stacks=text(said.get("stacks"), 16384))
    return [found[rank] for rank in sorted(found)]
