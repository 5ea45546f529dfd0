"""The whole job as the API server and the trainer would take it: what they refuse is refused by the option it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from oarlock_api.trainingjob import TrainingJob
from oarlock_import import fit
from oarlock_trainer.plan.support import unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_import.draft import Draft
    from oarlock_import.options import Options

_DATASETS = ("spec", "training", "data", "datasets")


def checked(name: str, draft: Draft, options: Options, sets: Sequence[Options]) -> TrainingJob | None:
    """The job, or None where anything is refused; `sets` are the entries that its data sets come from, in their order."""
    report = options.report
    document: dict[str, Any] = {"metadata": {"name": name}, "spec": draft.spec}
    if report.has_refused:
        return None
    try:
        job = TrainingJob.model_validate(document)
    except ValidationError as error:
        found = {problem["loc"]: problem["msg"] for problem in error.errors(include_url=False, include_input=False)}
        for place, why in found.items():
            # What stands around a wrong field is called wrong as well, such as a list that lacks it.
            if not any(other != place and other[: len(place)] == place for other in found):
                _refuse(place, why, options, sets)
        return None
    if job.spec.training and (impossible := [*unsupported(job.spec.training)]):
        for field, why in impossible:
            _refuse(tuple(field.split(".")), f"the trainer cannot do what it asks for{why}", options, sets)
        return None
    if memory := fit.task(job.spec):
        report.task(memory)
    return job


def _refuse(place: tuple[int | str, ...], why: str, options: Options, sets: Sequence[Options]) -> None:
    """Refuse the option that a field comes from, or the field itself where no option is known for it."""
    own, names = options, [str(step) for step in place[1:] if isinstance(step, str)]
    length = len(_DATASETS)
    if place[:length] == _DATASETS and len(place) > length and isinstance(number := place[length], int):
        own, names = sets[number], [str(step) for step in place[length + 1 :] if isinstance(step, str)]
    field = ".".join(str(step) for step in place)
    key = own.behind(".".join(names)) if names else ""
    if key:
        options.report.refused_after_all(own.place(key), own.name(key), f"{why} (it became {field})")
    else:
        options.report.refused("the job", field, why)
