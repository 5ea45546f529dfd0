"""Draws the pictures of the documentation: `python docs/pictures/draw.py [--check]`."""

from __future__ import annotations

import sys
from pathlib import Path

from diagram import Arrow, Box, Diagram, Frame, svg
from record import RECORDED
from terminal import terminal

HERE = Path(__file__).parent

PICTURES = {
    "loop": Diagram(
        "The loop: train, fault, verdict, tear down and cordon, start elsewhere, resume",
        (
            Box("train", 0, 0, ("save checkpoints",)),
            Box("a GPU breaks", 1, 0, ("XID, ECC, lost, hang",), strong=True),
            Box("verdict", 2, 0, ("by the pod's own agent",)),
            Box("tear down", 2, 1, ("the whole gang, in seconds",)),
            Box("cordon", 1, 1, ("within the brakes",)),
            Box("start elsewhere", 0, 1, ("newest valid checkpoint",)),
        ),
        (
            Arrow("train", "a GPU breaks"),
            Arrow("a GPU breaks", "verdict"),
            Arrow("verdict", "tear down"),
            Arrow("tear down", "cordon"),
            Arrow("cordon", "start elsewhere"),
            Arrow("start elsewhere", "train"),
        ),
    ),
    "rounds": Diagram(
        "A round ends, the gang stands by, and the next round begins, or a new attempt",
        (
            Box("round 1", 0, 0, ("all ranks train",)),
            Box("a rank ends or hangs", 1, 0, ("its agent tells rank 0's",)),
            Box("stand by", 2, 0, ("each agent kills its ranks",)),
            Box("whole again", 2, 1, ("nothing of round 1 lives",)),
            Box("round 2", 1, 1, ("newest step that all have",), strong=True),
            Box("new attempt", 3, 0, ("all agents leave",)),
            Box("a lost pod's next", 3, 1, ("checks, imports, waits",)),
        ),
        (
            Arrow("round 1", "a rank ends or hangs"),
            Arrow("a rank ends or hangs", "stand by"),
            Arrow("a lost pod's next", "whole again"),
            Arrow("stand by", "whole again"),
            Arrow("whole again", "round 2"),
            Arrow("stand by", "new attempt"),
        ),
    ),
    "parts": Diagram(
        "Who talks to whom: kubectl, API server, operator, the pods of a gang and their storage",
        (
            Box("kubectl, Argo", 0, 0, ("a TrainingJob",)),
            Box("API server", 1, 0, ("spec, status, Events",)),
            Box("operator", 2, 0, ("observe, decide, execute",), strong=True),
            Box("ranks 0-7", 0, 1.4, ("one a GPU",)),
            Box("monitor", 1, 1.4, ("NVML, own process",)),
            Box("agent", 2, 1.4, ("PID 1, no torch",)),
            Box("output", 0, 2.6, ("NFS or PVC",)),
            Box("S3", 1, 2.6, ("pictures, embeddings",)),
        ),
        (
            Arrow("kubectl, Argo", "API server"),
            Arrow("operator", "API server"),
            Arrow("operator", "agent", "GET /status"),
            Arrow("monitor", "agent"),
            Arrow("ranks 0-7", "output"),
            Arrow("S3", "ranks 0-7"),
        ),
        (Frame("a pod on each 8-GPU node", (0, 2), (1.4, 1.4)),),
    ),
    "data": Diagram(
        "A sample's way: source, table, bucket, shard, order, batch",
        (
            Box("sources", 0, 0, ("folders, S3",)),
            Box("table", 1, 0, ("sizes, captions",)),
            Box("buckets", 2, 0, ("same aspect, same shape",)),
            Box("embeddings", 3, 0, ("shards, made once",)),
            Box("order", 2, 1, ("f(seed, epoch, index)",)),
            Box("batches", 1, 1, ("prefetched, pinned",)),
            Box("ranks", 0, 1, ("one bucket a step",), strong=True),
        ),
        (
            Arrow("sources", "table"),
            Arrow("table", "buckets"),
            Arrow("buckets", "embeddings"),
            Arrow("buckets", "order"),
            Arrow("order", "batches"),
            Arrow("batches", "ranks"),
        ),
    ),
    "checkpoint": Diagram(
        "A checkpoint's way: copied beside the next step, written by a process of its own, committed by rank 0",
        (
            Box("optimizer step", 0, 0, ("training goes on",)),
            Box("copy", 1, 0, ("to the host, beside", "the next pass"), strong=True),
            Box("writer", 2, 0, ("a process a rank,", "hashed shards")),
            Box("commit", 2, 1, ("rank 0: fenced, then", "the manifest")),
            Box("S3", 1, 1, ("a copy, in the", "background")),
            Box("next attempt", 0, 1, ("newest valid one, any", "number of ranks")),
        ),
        (
            Arrow("optimizer step", "copy"),
            Arrow("copy", "writer"),
            Arrow("writer", "commit"),
            Arrow("commit", "S3"),
            Arrow("S3", "next attempt"),
        ),
    ),
}

DEMO = "A recorded run of make demo: two nodes train, a GPU breaks, its node is cordoned, training goes on elsewhere"


def main(arguments: list[str]) -> int:
    """Write the pictures, or tell which differ from their source."""
    drawn = {HERE / f"{name}.svg": svg(diagram) for name, diagram in PICTURES.items()}
    drawn[HERE / "demo.svg"] = terminal(DEMO, RECORDED.read_text().splitlines())
    if arguments == ["--check"]:
        stale = [path.name for path, text in drawn.items() if not path.exists() or path.read_text() != text]
        if stale:
            sys.stderr.write(f"docs/pictures: {', '.join(stale)} differ from draw.py: run make generate\n")
        return 1 if stale else 0
    for path, text in drawn.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
