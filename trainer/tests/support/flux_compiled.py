"""A process that compiles a small transformer as a rank does, and tells what came of it as JSON.

    flux_compiled.py SCRATCH

Compiled code is kept below SCRATCH/output, too. It starts as ranks do, with torch's compiler switched off by the environment
and left out of the imports.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime import uncompiled

preload.settle_environment()
uncompiled.import_torch()
import torch  # noqa: E402
from flux_pair import batch, distance, pair, passes, worst  # noqa: E402

from oarlock_api.training import Training  # noqa: E402
from oarlock_trainer.models.compute import kept_code  # noqa: E402
from oarlock_trainer.models.tuning import tune  # noqa: E402
from oarlock_trainer.models.warm_up import Shape, warm_up  # noqa: E402

CPU = torch.device("cpu")
TEXT = 9


def main() -> None:
    theirs, mine = pair(double=2, single=2)
    training = Training.model_validate(
        {
            "model": {"family": "Flux1", "path": "/model"},
            "steps": 1,
            "batchSize": 2,
            "compile": {"mode": "Default", "fullGraph": True},
            "data": {"datasets": [{"name": "one", "source": {"path": "/data"}}]},
        }
    )
    kernel = tune(mine, training, device=CPU, recomputed=1, scratch=Path(sys.argv[1]))
    weights = {name: value.clone() for name, value in mine.state_dict().items()}
    randomness = torch.random.get_rng_state()
    told: list[tuple[int, int]] = []
    shapes = [Shape(8, 12, TEXT)]
    output = Path(sys.argv[1], "output")
    kept_code.bring(output, CPU)
    ran = warm_up(mine, shapes, training, kernel=kernel, told=lambda done, of, _seconds: told.append((done, of)))
    kept_code.keep(output, CPU)
    from torch._dynamo.utils import counters  # noqa: PLC0415

    warm = {
        "same_weights": all(torch.equal(value, weights[name]) for name, value in mine.state_dict().items()),
        "gradients": sum(parameter.grad is not None for parameter in mine.parameters()),
        "same_randomness": torch.equal(randomness, torch.random.get_rng_state()),
    }
    graphs = counters["stats"]["unique_graphs"]
    given = batch(size=2, height=8, width=12, text=TEXT)
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(mine, given)
    with torch.no_grad():  # a shape that was not warmed up, as validation has them
        mine(**batch(size=1, height=4, width=4, text=TEXT))
    sys.stdout.write(
        json.dumps(
            warm
            | {
                "told": told,
                "attention": ran,
                "graphs": graphs,
                "graphs_later": counters["stats"]["unique_graphs"] - graphs,
                "from_cache": counters["aot_autograd"]["autograd_cache_hit"]
                + counters["inductor"]["fxgraph_cache_hit"],
                "prediction": distance(found, wanted),
                "worst_gradient": worst(gradients, wanted_gradients),
            }
        )
    )


main()
