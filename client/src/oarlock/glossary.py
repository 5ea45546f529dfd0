"""The words of the house: what each means, where it means something of its own.

docs/concepts.md has the table that is made of them, and the page its view of words, to which its headings lead. In meanings
links are those of the documentation, in Markdown.
"""

from __future__ import annotations

import re

WORDS = {
    "agent": "the first process of a pod, without torch: it starts the ranks, watches them, and writes the report",
    "attempt": "one try of the gang, numbered from 1; what an attempt made carries its number",
    "avoided node": (
        "a node that this job keeps off, softly (rather elsewhere) or strictly, until a time, until it is booted "
        "anew, or until somebody says that it may be used again"
    ),
    "brakes": (
        "limits on cordoning that no job can move: so many nodes within a window, so many of a namespace, one of "
        "a job, never more than half, and enough left for the gang"
    ),
    "breaker": "the ConfigMap that stops all cordoning once a brake held for the whole cluster; a person deletes it",
    "bucket": "pictures that are trained at one size; a micro-batch comes from one bucket",
    "budget": "how many restarts a job has: for its own bugs, for broken infrastructure, and without a newer checkpoint",
    "canary": "a small checkpoint that all nodes write and read before a GPU is busy",
    "checkpoint": (
        "a directory with the marker COMMITTED, the manifest that it was written for, and every file in its "
        "size; hashes are compared before a run goes on from it"
    ),
    "circuit": (
        "whether the ranks should go on, as a trainer of your own asks it between steps ([GPU "
        "faults](gpu-faults.md)); not the breaker"
    ),
    "class of a fault": (
        "who is to blame: GPU, NodeLost, Application, Hang, Storage, Configuration, Preflight, PeerLost, "
        "Requested, Fenced ([status](reference/status.md))"
    ),
    "contract": (
        "what operator, agent and ranks tell each other: files, environment, `/status`, exit codes "
        "(`api/src/oarlock_api/contract/`)"
    ),
    "cordon": "a node is closed to new pods (`spec.unschedulable`), with our evidence in an annotation",
    "drain": "the time in which pods that were asked to go save and end",
    "drill": (
        "a save as if the pods had been told to go, asked for to learn how long it takes: training stands still "
        "until the checkpoint is valid, and goes on"
    ),
    "ending": "how a pod's container ended: exit code, and the report that it left",
    "evidence, proven": (
        "what a driver said of a GPU, with its time; a report without it is a program's claim, and cordons "
        "nothing; preflight (exit code 87) is believed where it names the GPU"
    ),
    "fence": (
        "a file in the output that says which attempt may commit, and which round of it; ranks of an older one find "
        "out and leave (exit code 88)"
    ),
    "gang, group": "the pods of an attempt; the object by which a gang system (Kueue, Volcano, ...) places them together",
    "goodput": (
        "the share of the time for which a job holds GPUs that made progress: without waiting for a recovery, "
        "and without steps that are done again"
    ),
    "hang": "no step, and no sign of other work, for longer than the job's own steps explain",
    "incarnation": "how often the pod of a rank was made within an attempt, by one counter for all its ranks",
    "leader": (
        "rank 0's agent: it orders the rounds of its attempt and tells the operator of them; of operators, the "
        "one that holds the Lease"
    ),
    "ledger of cordons": (
        "the ConfigMap in which each cordon is entered before its node is written; the brakes count by it"
    ),
    "link": (
        "the connection of every agent to that of rank 0, by which a gang ends within a second of what a peer "
        "says, and 5 s after one falls silent"
    ),
    "master weights": "the float32 weights that an optimizer updates, beside the bfloat16 ones that compute",
    "micro-batch": "what one GPU takes at once: `batchSize`; x `gradientAccumulation` x world size = the effective batch",
    "observe, decide, execute": (
        "the three parts of a pass: what there is, read; what follows, pure; what is done, after the status was written"
    ),
    "pass": "one look at one job: observe, decide, write the status, execute",
    "plan": (
        "of the operator: a status, actions, Events. Of `oarlock-trainer plan`: what a job would do, told before "
        "it runs"
    ),
    "pod 3": (
        "that pod of the gang: the number ends its name, and goes from 0 to nodes - 1. With 8 GPUs on each node it runs "
        "ranks 24-31. Fields call the number `rank` (its label, `lastFault.rank`, a report, a line of a log), the "
        "environment `MACHINE_RANK`"
    ),
    "preflight": "what a node and its gang are asked before they train: storage, clock, memory, GPUs, network, a collective",
    "pretended GPU": (
        "a GPU that a local cluster advertises and the simulated driver answers for; training itself runs on CPUs"
    ),
    "probe": (
        "one question to a GPU's driver: ECC, remapped rows, temperature, links. XIDs are the driver's own news; "
        "`/status` and reports list them beside the probes as `xid`"
    ),
    "quarantine": (
        "pictures that could not be read, by name and reason; training goes on without them, unless there are too many"
    ),
    "rank host": "the process on a node that imports torch once and forks the ranks",
    "rank, world size": "one training process on one GPU, numbered through all pods; how many there are",
    "reading, symptom, verdict": (
        "what a probe saw; what speaks against a GPU; what to do: hold, restart the process, replace the node. "
        "An agent's verdict: how its pod ends, as exit code and sentence"
    ),
    "report": "the JSON that an agent leaves in the termination message: exit code, GPU, XID, evidence",
    "round": "one start of all ranks within an attempt; a fault that needs no new pods, or few, ends a round only",
    "rung": (
        "how much a recovery makes anew: RestartRanks (a round), TakeSpare and Shrink (a round without the lost pod), "
        "ReplacePod (one pod), Attempt (all pods); Grow: a round with more nodes, after no fault"
    ),
    "shard": "of data: a file of many embeddings. Of a checkpoint: one rank's file",
    "spare": (
        "a pod beyond a job's nodes, which stands by and takes the place of one that is lost (spec.spares); a spare node is "
        "a free one that fits the job and that it does not avoid"
    ),
    "stage": (
        "a part of the way to an attempt's first step: detect, decide, drain, queue, schedule, start, first step "
        "([recovery](recovery.md))"
    ),
    "strike": "a fault that a GPU survived; repeated within a day, on evidence, its node is avoided or cordoned",
    "surge pod": (
        "the next pod of one that was asked to go, made while that one still trains; it takes its place once it is ready"
    ),
    "used again": (
        "of a node: a person uncordoned it, or, where nobody had cordoned it, wrote `oarlock.dev/given-back`; no job "
        "avoids it any more. `oarlock uncordon` does either"
    ),
    "victim": "a pod that ended because a peer did; it is never blamed",
    "vouched for": "of a program: the site knows its image, so its reports may cordon a node",
}
"""Word, or words that are told of together -> meaning."""
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
BY_NAME = {name.strip(): words for words in WORDS for name in words.split(",")}
"""Each word alone -> the row that it stands in."""


def meaning(word: str) -> str:
    """What a word means, with its links as text. Raises KeyError for a word that is no row's."""
    return _LINK.sub(r"\1", WORDS[BY_NAME[word]])


def anchor(word: str) -> str:
    """What the row is called in an address. Raises KeyError."""
    return BY_NAME[word].partition(",")[0].replace(" ", "-")
