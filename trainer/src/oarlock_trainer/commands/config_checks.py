"""What ends a run before and after its data are read, found without them: settings, the model, and what a job names beside.

The checks are the run's own. They are asked all, so that one plan tells all that is wrong.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from oarlock_api.training import Task
from oarlock_trainer.loop.setup import adapters_of, check_initial, model_folder
from oarlock_trainer.models import folder
from oarlock_trainer.models.adapters.targets import targeted
from oarlock_trainer.models.families import family_of
from oarlock_trainer.models.source import check_stored_initial
from oarlock_trainer.plan.parameters import read_architecture
from oarlock_trainer.plan.support import refuse_unsupported
from oarlock_trainer.runtime.errors import ConfigurationError, all_of, readable
from oarlock_trainer.validation.image_requests import check_prompts, read_image_requests

if TYPE_CHECKING:
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.storage.locations import Locations


def check_config(job: Job, locations: Locations) -> None:
    """Raise ConfigurationError that lists all that is wrong; StorageError where it cannot be told.

    A model that is not here is not looked at; names of layers are then compared with the family's published ones. Of one
    whose weights are not here the configuration is.
    """
    found = []
    stored = (partial(_stored_initial, locations=locations), partial(_prompts, locations=locations))
    for check in (_settings, _model, _targets, check_initial, *stored):
        try:
            check(job)
        except ConfigurationError as error:
            found.append(error)
    if found:
        raise all_of(found) from found[0]


def _settings(job: Job) -> None:
    refuse_unsupported(job.training)


def _model(job: Job) -> None:
    model, field = model_folder(job), "training.model.path"
    family = family_of(job.training.model)
    with readable(field, model):
        there = model.is_dir()
    if folder.is_sketch(model, family):
        folder.check_sketch(model, family, field=field)
    elif there:
        folder.check(model, family, field=field)


def _targets(job: Job) -> None:
    adapters = adapters_of(job)
    if adapters is None or job.training.task is Task.PREPROCESS:
        return
    model = model_folder(job)
    family = family_of(job.training.model)
    shape = read_architecture(model, family) if folder.has_configuration(model) else family.published
    targeted(adapters.targets, [one.name for one in shape.linears], family.presets)


def _stored_initial(job: Job, *, locations: Locations) -> None:
    check_stored_initial(job.training, locations)


def _prompts(job: Job, *, locations: Locations) -> None:
    model = model_folder(job)
    if folder.has_configuration(model) and not folder.is_sketch(model, family_of(job.training.model)):
        read_image_requests(job, locations)
    else:
        check_prompts(job, locations)
