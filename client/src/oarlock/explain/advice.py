"""What to do, with names in it: sentences in which commands stand between backticks, each as it can be copied into a shell.

A job's own program may write into its output what it wants, and a command is copied into the shell of an administrator: no
name gets into a command that Kubernetes does not allow as one.

`pieces` takes them apart again, for whoever draws a link or a button where a terminal shows the command.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from oarlock.explain.causes import Cause
from oarlock.explain.some_names import some
from oarlock.facts.model import Facts
from oarlock.names import is_name

MOST_COMMANDS = 4
"""The same command for several nodes."""
_CLAIMED = "Look at the GPUs of NODE before you repair any: only the program says so, and no driver."
"""What to do about a broken GPU of which no driver speaks: any program can exit with these codes."""


def advice(
    cause: Cause,
    *,
    job: str,
    nodes: Sequence[str] = (),
    attempt: int | None = None,
    taint: str = "",
    proven: bool = True,
) -> str:
    """What to do about a cause. `job` is what `job_of` says, `nodes` those that it is about, as far as they are known.

    `taint` is the key of the one that keeps pods away; `proven`: whether more than a program's word says it.
    """
    known = [node for node in nodes if is_name(node)]
    told = []
    for place, part in enumerate((cause.next if proven or cause is not Cause.GPU_FAULT else _CLAIMED).split("`")):
        if place % 2 == 0:
            told.append(part.replace("NODE", some(known, MOST_COMMANDS) if known else "the node"))
            continue
        line = part.replace("JOB", job).replace("KEY", shlex.quote(taint) if taint else "KEY")
        line = line.replace("ATTEMPT", str(attempt)) if attempt else line.replace(" --attempt ATTEMPT", "")
        each = [line.replace("NODE", shlex.quote(node)) for node in known[:MOST_COMMANDS]] if "NODE" in line else []
        told.append("`, `".join(each) or line)
    return "`".join(told)


def job_of(facts: Facts) -> str:
    """The job as a command names it: whatever namespace the reader's kubeconfig means. `JOB` where it is no name."""
    names = [facts.name, facts.namespace] if facts.namespace else [facts.name]
    return " -n ".join(map(shlex.quote, names)) if all(map(is_name, names)) else "JOB"


def pieces(advice: str) -> Iterator[str | list[str]]:
    """A sentence's words as text, and each of its commands as a list of words."""
    for place, part in enumerate(advice.split("`")):
        if place % 2 == 0:
            yield part
            continue
        try:
            yield shlex.split(part)
        except ValueError:
            yield part.split()
