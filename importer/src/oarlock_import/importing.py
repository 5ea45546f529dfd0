"""All of SimpleTuner's files into one job: the parts in order, then the API's own check of the whole."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_api.contract.names import MAX_NAME_LENGTH
from oarlock_import import datasets, deepspeed, launch, model, optimizer, reporting, run, webhooks
from oarlock_import.checked import checked
from oarlock_import.draft import Draft
from oarlock_import.options import Options
from oarlock_import.places import Places, label
from oarlock_import.report import Report
from oarlock_import.rows import at_default, table
from oarlock_import.simpletuner import DEFAULTS
from oarlock_import.tables.data import DATA
from oarlock_import.tables.machine import MACHINE
from oarlock_import.tables.methods import METHODS
from oarlock_import.tables.model import MODEL
from oarlock_import.tables.optimization import OPTIMIZATION
from oarlock_import.tables.reporting import REPORTING
from oarlock_import.tables.training import TRAINING

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_api.trainingjob import TrainingJob
    from oarlock_import.read import Found

OPTIONS = table(
    *(at_default(row, DEFAULTS) for row in (*MODEL, *TRAINING, *OPTIMIZATION, *DATA, *REPORTING, *MACHINE, *METHODS))
)
"""Every option of config.json by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What was read, and what a job needs that SimpleTuner's files don't say."""

    options: Found
    datasets: Found | None
    accelerate: Found | None = None
    accelerate_place: str = ""
    """Where accelerate looks for its file itself; told where there is none."""
    webhooks: Found | None = None
    name: str | None = None
    claim: str = "training-output"
    mount_path: str = "/output"
    working_directory: str = "/output"
    find: Callable[[str], str]
    """Text of a file that an entry names; raises OSError where it is not found."""
    has_folder: Callable[[str], bool] = lambda _: False
    """Whether a folder is on this machine, which a name of a hub's repository may mean, too."""


def build(inputs: Inputs) -> tuple[TrainingJob | None, Report]:
    """The job, or None if anything was refused, and what became of every option."""
    report, draft = Report(), Draft()
    for file in (inputs.options, inputs.datasets, inputs.accelerate, inputs.webhooks):
        if file is not None:
            report.knows(file.name, file.lines)
    told = inputs.options
    for key, source in told.elsewhere.items():
        report.knows(source, {("", key): told.lines["", key]})
    options = Options(told.name, told.content, rows=OPTIONS, report=report, elsewhere=told.elsewhere)
    for source, key, why in told.notes:
        report.ignored(source, key, why)
    name = inputs.name or _name(options)
    places = Places(job=name, working_directory=inputs.working_directory, output=inputs.mount_path, report=report)
    draft.put("output", {"persistentVolumeClaim": {"claimName": inputs.claim}, "mountPath": inputs.mount_path})
    report.task(f"a PersistentVolumeClaim {inputs.claim}, ReadWriteMany for more than one node, for the output")
    launched = launch.read_launch(
        options,
        inputs.accelerate.content if inputs.accelerate else None,
        source=inputs.accelerate.name if inputs.accelerate else f"{inputs.options.name}[accelerate]",
        find=inputs.find,
    )
    model.place(options, draft, places=places, find=inputs.find, has_folder=inputs.has_folder)
    run.place(options, launched, draft)
    launch.place(launched, options, draft)
    if launched.deepspeed is None:
        optimizer.place(options, draft)
    else:
        deepspeed.place(launched.deepspeed, options, draft)
        launch.refuse_sharded_and_compiled(launched, draft)
    reporting.place(options, draft, places=places)
    sets = _data(inputs, options, draft, places)
    _webhooks(inputs, options, draft, name)
    _accelerate(inputs, options, draft)
    launched.accelerate.settle(draft)
    options.settle(draft)
    return checked(name, draft, options, sets), report


def _name(options: Options) -> str:
    """The job's name, from the name of the output directory."""
    directory = posixpath.basename(posixpath.normpath(options.value("output_dir") or "")) or "simpletuner"
    name = label(directory, longest=MAX_NAME_LENGTH)
    return name if name[0].isalpha() else label(f"job-{name}", longest=MAX_NAME_LENGTH)


def _data(inputs: Inputs, options: Options, draft: Draft, places: Places) -> list[Options]:
    """Write training.data; returns the entries of its data sets."""
    if inputs.datasets is None:
        options.refused("data_backend_config", "is not found here: pass multidatabackend.json with --datasets")
        return []
    source, entries = inputs.datasets.name, inputs.datasets.content
    if not isinstance(entries, list):
        options.report.refused(source, "entries", "is no list of data sets")
        return []
    sets = datasets.place(entries, options, draft, places=places, source=source, find=inputs.find)
    if places.connections:
        draft.put("training.s3Connections", places.connections)
    arrow = "" if "data_backend_config" in options else "-> "
    options.mapped("data_backend_config", words=f"{arrow}{source}, see there")
    return sets


def _accelerate(inputs: Inputs, options: Options, draft: Draft) -> None:
    """Say which of accelerate's files counted, and what it means that there is none."""
    if "accelerate_config" in options and inputs.accelerate:
        options.mapped("accelerate_config", words=f"{inputs.accelerate.name}, see there")
    elif "accelerate_config" in options:
        options.refused("accelerate_config", "is not found here: pass the file with --accelerate")
    elif inputs.accelerate is None:
        size = f"{draft.get('nodes')} x {draft.get('gpusPerNode')} GPUs (nodes x gpusPerNode)"
        where = f" and none is at {inputs.accelerate_place}, where accelerate looks" if inputs.accelerate_place else ""
        options.report.task(
            f"see that the job's size is meant, {size}: no file of accelerate is named{where}; pass it with --accelerate"
        )


def _webhooks(inputs: Inputs, options: Options, draft: Draft, job: str) -> None:
    if inputs.webhooks is None:
        if "webhook_config" in options:
            options.refused("webhook_config", "is not found here: pass the file with --webhooks")
        return
    found = webhooks.read(inputs.webhooks.content, job=job, source=inputs.webhooks.name, report=options.report)
    draft.put("webhooks", found)
    if rules := webhooks.rules(found, source=inputs.webhooks.name, report=options.report):
        draft.put("recovery.rules", rules)
    command = webhooks.task(found)
    if command:
        options.report.task(command)
    if "webhook_config" in options:
        options.mapped("webhook_config", words=f"{inputs.webhooks.name}, see there")
