"""Names of the status, the history and reports as people read them: the one table for pages, reports and commands.

Programs get the names: in JSON they are as they were.
"""

from __future__ import annotations

_STAGE = {"FirstStep": "first step"}
BUSY_WITH = {
    "Detect": "the operator looks for the cause",
    "Decide": "the next attempt is decided on",
    "Drain": "the old pods stop",
    "Cordon": "a broken node is cordoned",
    "Queue": "the new gang waits in its queue",
    "Schedule": "the new pods wait for nodes",
    "Start": "the new pods start",
    "FirstStep": "imports, checks, the data and the model, until the first step",
    "Replace": "a lost pod is made anew, and the others stand by",
}
"""RecoveryStage: what a job is busy with."""
_KIND = {"LastFault": "last fault", "Strike": "strike", "Cordoned": "cordoned", "Avoided": "avoided"}
_VERDICT = {
    "Ignore": "nothing to do",
    "Hold": "to be watched",
    "RestartProcess": "new processes mend it",
    "ReplaceNode": "the node is to be taken out",
}


def stage(name: str) -> str:
    """A stage of a start or a recovery: `FirstStep` is the first step."""
    return _STAGE.get(name, name.lower())


def kind(name: str) -> str:
    """What a row of `oarlock faults` is."""
    return _KIND.get(name, name)


def verdict(name: str) -> str:
    """What a GPU's fault calls for."""
    return _VERDICT.get(name, name)


def source(name: str) -> str:
    """Who said it: what stands in the status was written by the operator."""
    return "the operator" if name.partition(".")[0] == "status" else name
