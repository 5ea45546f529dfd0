"""Every admission rule, on a real API server and in the models: what is refused, and that the refusal says how to mend.

The tables in admission/ are run twice. The server evaluates the CEL of the generated CRD, the models evaluate its
Python twin; a rule that only one of them has would show here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from oarlock_api.manifest import load, load_all
from oarlock_api.rules import Rule
from oarlock_api.trainingjob import TrainingJob

if TYPE_CHECKING:
    from conftest import ApiServer, Manifest

MakeJob = Callable[..., "Manifest"]


def _table(name: str) -> list[Manifest]:
    return load((Path(__file__).parent / "admission" / f"{name}.yaml").read_text())


def _name(case: Manifest) -> str:
    return case["case"]


ACCEPTED = _table("accepted")
REFUSED = _table("refused")
OUT_OF_BOUNDS = _table("out_of_bounds")
DUPLICATES = _table("duplicates")
UNKNOWN = _table("unknown")

EXAMPLES = [
    (path.name, document)
    for path in sorted((Path(__file__).parents[2] / "examples").glob("**/*.yaml"))
    for document in load_all(path.read_text())
    if document.get("kind") == "TrainingJob"
]

NAMES = ["Upper", "9digit", "dot.ted", "a" * 51, "-dash", "dash-"]
"""Names of which Kubernetes itself refuses some, and the rule the others."""


def refusal(job: Manifest) -> str:
    """What the models say against a job."""
    with pytest.raises(ValidationError) as refused:
        TrainingJob.model_validate(job)
    return str(refused.value)


@pytest.mark.parametrize("case", ACCEPTED, ids=_name)
def test_models_accept(make_job: MakeJob, case: Manifest) -> None:
    TrainingJob.model_validate(make_job(case["spec"]))


@pytest.mark.parametrize("case", REFUSED, ids=_name)
def test_models_refuse_and_say_how_to_mend(make_job: MakeJob, case: Manifest) -> None:
    assert case["words"] in refusal(make_job(case["spec"]))


@pytest.mark.parametrize(
    ("size", "nearest"),
    [
        ({"nodes": 4, "gpusPerNode": 8}, "24 micro-batches on 32 GPUs, at most nodes: 3 with gpusPerNode: 8: "),
        ({"nodes": 2, "gpusPerNode": 16}, "24 micro-batches on 32 GPUs, at most nodes: 1 with gpusPerNode: 16: "),
        ({"nodes": 25, "gpusPerNode": 0}, "24 micro-batches on 25 GPUs, at most nodes: 24 with gpusPerNode: 1: "),
    ],
)
def test_a_size_that_a_step_cannot_be_dealt_to_is_refused_with_the_nearest(
    make_job: MakeJob, size: Manifest, nearest: str
) -> None:
    assert nearest in refusal(make_job(size | {"training": {"batchSize": 2, "effectiveBatch": 48}}))


@pytest.mark.parametrize("case", OUT_OF_BOUNDS, ids=_name)
def test_models_refuse_what_is_out_of_bounds(make_job: MakeJob, case: Manifest) -> None:
    assert case["words"].replace("[", ".").replace("]", "") in refusal(make_job(case["spec"]))


@pytest.mark.parametrize("case", DUPLICATES, ids=_name)
def test_models_refuse_duplicates(make_job: MakeJob, case: Manifest) -> None:
    assert "Duplicate value" in refusal(make_job(case["spec"]))


@pytest.mark.parametrize("name", NAMES)
def test_models_refuse_names_that_are_no_host_names(make_job: MakeJob, name: str) -> None:
    assert "choose another name" in refusal(make_job(name=name))


@pytest.mark.cluster
@pytest.mark.parametrize("case", ACCEPTED, ids=_name)
def test_api_server_accepts(api: ApiServer, make_job: MakeJob, case: Manifest) -> None:
    answer = api.create(make_job(case["spec"]))
    assert answer.is_success, answer.json()["message"]


@pytest.mark.cluster
@pytest.mark.parametrize("case", REFUSED, ids=_name)
def test_api_server_refuses_and_says_how_to_mend(api: ApiServer, make_job: MakeJob, case: Manifest) -> None:
    answer = api.create(make_job(case["spec"]))
    assert answer.status_code == 422, answer.text
    assert case["words"] in answer.json()["message"]


@pytest.mark.cluster
@pytest.mark.parametrize("case", OUT_OF_BOUNDS, ids=_name)
def test_api_server_refuses_what_is_out_of_bounds(api: ApiServer, make_job: MakeJob, case: Manifest) -> None:
    answer = api.create(make_job(case["spec"]))
    assert answer.status_code == 422, answer.text
    assert case["words"] in answer.json()["message"]


@pytest.mark.cluster
@pytest.mark.parametrize("case", DUPLICATES, ids=_name)
def test_api_server_refuses_duplicates(api: ApiServer, make_job: MakeJob, case: Manifest) -> None:
    answer = api.create(make_job(case["spec"]))
    assert answer.status_code == 422, answer.text
    assert "Duplicate value" in answer.json()["message"]


@pytest.mark.cluster
@pytest.mark.parametrize("name", NAMES)
def test_api_server_refuses_names_that_are_no_host_names(api: ApiServer, make_job: MakeJob, name: str) -> None:
    answer = api.create(make_job(name=name))
    assert answer.status_code == 422, answer.text
    assert "metadata.name" in answer.json()["message"]


@pytest.mark.cluster
def test_api_server_accepts_the_common_job(api: ApiServer, common_job: Manifest) -> None:
    answer = api.create(common_job)
    assert answer.is_success, answer.json()["message"]


@pytest.mark.cluster
@pytest.mark.parametrize(("file", "job"), EXAMPLES, ids=[file for file, _ in EXAMPLES])
def test_every_example_is_accepted_as_it_stands(api: ApiServer, file: str, job: Manifest) -> None:
    TrainingJob.model_validate(job)
    metadata = {key: value for key, value in job["metadata"].items() if key != "namespace"}  # this test has its own
    answer = api.create({**job, "metadata": metadata})
    assert answer.is_success, (file, answer.json()["message"])


@pytest.mark.cluster
@pytest.mark.parametrize("case", UNKNOWN, ids=_name)
def test_api_server_refuses_unknown_fields_when_asked_to_be_strict(
    api: ApiServer, make_job: MakeJob, case: Manifest
) -> None:
    answer = api.create(make_job(case["spec"]))
    assert answer.status_code == 400, answer.text
    assert f'unknown field "{case["words"]}"' in answer.json()["message"]


VARIABLES = ["MASTER_ADDR", "OARLOCK_JOB", "MACHINE_RANK"]


def with_variables(make_job: MakeJob) -> Manifest:
    return make_job({"pod": {"env": [{"name": name, "value": "x"} for name in ("HOME", *VARIABLES)]}})


def test_models_name_every_variable_that_they_refuse(make_job: MakeJob) -> None:
    said = refusal(with_variables(make_job))
    assert [name for name in ("HOME", *VARIABLES) if f"{name}: this variable is set by Oarlock" in said] == VARIABLES


@pytest.mark.cluster
def test_api_server_names_every_variable_that_it_refuses(api: ApiServer, make_job: MakeJob) -> None:
    said = api.create(with_variables(make_job)).json()["message"]
    assert [name for name in ("HOME", *VARIABLES) if f"{name}: this variable is set by Oarlock" in said] == VARIABLES


def test_every_rule_of_the_models_has_a_refusal_in_these_tables(make_job: MakeJob) -> None:
    refusals = "\n".join(refusal(make_job(case["spec"])) for case in REFUSED)
    refusals += refusal(make_job(name="Upper"))
    rules = list(_rules(TrainingJob))
    assert len(rules) > 50
    assert [rule.message for rule in rules if rule.holds is not None and rule.message not in refusals] == []


def test_only_transition_rules_have_no_python_side() -> None:
    assert all(("oldSelf" in rule.cel) == (rule.holds is None) for rule in _rules(TrainingJob))


def _rules(model: type[BaseModel]) -> Iterator[Rule]:
    """Every rule of a model, its fields and the models below it."""
    yield from getattr(model, "admission", ())
    for field in model.model_fields.values():
        yield from (entry for entry in field.metadata if isinstance(entry, Rule))
        yield from _rules_of_type(field.annotation)


def _rules_of_type(annotation: Any) -> Iterator[Rule]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from _rules(annotation)
    for part in get_args(annotation):
        if isinstance(part, Rule):
            yield part
        else:
            yield from _rules_of_type(part)
