"""`oarlock-trainer plan`: the order in which things are looked at, cheapest first, and what is told meanwhile.

A wrong word or a folder that is not there ends it before PyTorch is imported, which a cold disk may need half a minute for.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_trainer.commands import job_arguments
from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.errors import ConfigurationError, all_of
from oarlock_trainer.runtime.progress_line import meanwhile

if TYPE_CHECKING:
    import argparse

    from oarlock_api.spec import TrainingJobSpec
    from oarlock_api.training import Training


def run(options: argparse.Namespace) -> int:
    """Print the plan of a manifest; returns 0, or the exit code that the run would end with."""
    preload.settle_environment()
    return job_arguments.with_manifest(lambda: _plan(options))


def _plan(options: argparse.Namespace) -> int:
    with meanwhile() as now:
        now("reading the manifest")
        from oarlock_trainer.commands import local_manifest  # noqa: PLC0415 - pydantic's models
        from oarlock_trainer.plan.table import forecast, named  # noqa: PLC0415 - numpy

        named(gpu=options.gpu, fabric=options.fabric)
        paths = local_manifest.read_paths(options.path)
        name, given = local_manifest.read_manifest(options.filename)
        training = local_manifest.moved(given, paths)
        _refuse_missing(given, training)
        now("loading PyTorch")
        from oarlock_trainer.commands import plan_dry_run  # noqa: PLC0415 - torch
        from oarlock_trainer.plan.words import describe  # noqa: PLC0415 - numpy

        now(f"reading the model's configuration: {_model(training)}")
        with plan_dry_run.with_model_here(given, paths, os.environ) as spec:
            now(f"reading the data: {', '.join(one.name for one in training.data.datasets)}")
            data = plan_dry_run.dry_run(name, spec, paths)
            sys.stdout.write(describe(data))
            now("choosing what fits")
            training = local_manifest.moved(spec, paths)
            said = forecast(
                spec,
                training,
                data.image_tokens,
                text_tokens=data.encoded.tokens,
                frames=data.frames,
                gpu=options.gpu,
                fabric=options.fabric,
            )
            sys.stdout.write(said)
    return ExitCode.DONE


def _refuse_missing(given: TrainingJobSpec, training: Training) -> None:
    """Raise ConfigurationError that names every folder of the data that is not here; of the model, where its storage is.

    A plan can do without the model, which may be on its way to a place that this machine does not see.
    """
    from oarlock_trainer.data.metadata.sources import check_folder, folders_of  # noqa: PLC0415 - numpy and pyarrow

    named = {field: path for one in training.data.datasets for field, path in folders_of(one).items()}
    if given.training and _is_stored_here(given.training.model.path, training.model.path, given.output.mount_path):
        named["training.model.path"] = str(training.model.path)
    found = []
    for field, path in named.items():
        try:
            check_folder(Path(path), field=field)
        except ConfigurationError as error:
            found.append(error)
    if found:
        raise all_of(found)


def _is_stored_here(path: str | None, here: str | None, mount: str) -> bool:
    """Whether the storage of a pod's path is on this machine: a --path says where, or the output has its pods' name here."""
    return path is not None and (path != here or (Path(path).is_relative_to(mount) and Path(mount).is_dir()))


def _model(training: Training) -> str:
    model = training.model
    if model.hub:
        return f"{model.hub.repo} of the hub"
    return f"bucket {model.s3.bucket}" if model.s3 else str(model.path)
