"""`make soak`: faults of all kinds, at random, under a job on real local nodes; its curve is to stay that of a calm run.

Prints what each kind cost and what was found that must not be: with exit code 1 where there was any.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from oarlock_local.api import ApiServer
from oarlock_local.binaries import HELM
from oarlock_local.build import built
from oarlock_local.cluster import running
from oarlock_local.demo.inputs import make_inputs
from oarlock_local.demo.install import VALUES, install_operator
from oarlock_local.demo.output import make_output
from oarlock_local.launch import default_shares
from tests.e2e.jobs import Jobs
from tests.soak.faults import KINDS
from tests.soak.field import Field
from tests.soak.run import Plan, Soak
from tests.soak.shapes import SHAPES
from tests.soak.table import reasons, table, without_effect

ROOT = Path(__file__).parents[2]


def tell(words: str) -> None:
    """Print at once, also into a file."""
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--faults", type=int, default=1000, help="how many in all (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="none is begun later (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000), help="what is chosen")
    parser.add_argument(
        "--nodes", type=int, default=3, help="of the cluster; a job takes up to three (default: %(default)s)"
    )
    parser.add_argument("--steps", type=int, default=1500, help="of each job (default: %(default)s)")
    parser.add_argument(
        "--gap", type=float, default=10, help="mean seconds of training between faults (default: %(default)s)"
    )
    parser.add_argument(
        "--bound", type=float, default=180, help="seconds within which one is mended (default: %(default)s)"
    )
    parser.add_argument("--pace", type=float, default=0.1, help="seconds that a step rests (default: %(default)s)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=[], help="done in turn (default: drawn by chance)")
    parser.add_argument(
        "--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), help="of the jobs, in turn (default: all)"
    )
    given = parser.parse_args()
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # what was measured until then is told

    def say(words: str) -> None:
        tell(f"{time.monotonic() - began:7.0f} {words}")

    say(f"seed {given.seed}")
    plan = Plan(
        faults=given.faults,
        minutes=given.minutes,
        steps=given.steps,
        gap=given.gap,
        bound=given.bound,
        pace=given.pace,
        kinds=tuple(given.kinds),
        shapes=tuple(SHAPES[name] for name in given.shapes),
    )
    # One namespace has many faults within an hour.
    settings = {**VALUES["settings"], "CORDON_MAX_NODES": 100_000, "CORDON_NAMESPACE_MAX_NODES": 100_000}
    inputs = make_inputs()
    with (
        tempfile.TemporaryDirectory(prefix="oarlock-soak-") as folder,
        running("soak", nodes=given.nodes, gpus=1, shares=[*default_shares(), ROOT], state=Path(folder)) as cluster,
        ApiServer(cluster.kubeconfig) as api,
    ):
        install_operator(cluster, ROOT, built(HELM), values={**VALUES, "settings": settings})
        jobs = Jobs(cluster, make_output(cluster, ROOT, inputs), api)
        chance = random.Random(given.seed)  # noqa: S311 - nothing secret
        soak = Soak(jobs, plan, Field(jobs, "soak-1", chance), say)
        try:
            soak.play()
            for kind in without_effect(soak.costs, {name for name, kind in KINDS.items() if kind.restarts}):
                soak.violations.append(f"{kind}: it was done again and again, and never started anything anew")
        finally:
            tell(f"\n{table(soak.costs)}\n\n{reasons(soak.costs)}\n")
            for words in soak.violations:
                tell(f"VIOLATION {words}")
            told = {
                "seed": given.seed,
                "faults": sum(soak.counts.values()),
                "jobs": soak.legs,
                "seconds": round(soak.seconds),
                "goodput": round(soak.useful / soak.seconds, 3) if soak.seconds else None,
                "steps": soak.steps,
                "again": soak.again,
                "violations": len(soak.violations),
            }
            tell(json.dumps(told))
    return 1 if soak.violations else 0


if __name__ == "__main__":
    sys.exit(main())
