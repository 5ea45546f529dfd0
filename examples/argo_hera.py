"""An Argo Workflow in Python: each file's TrainingJob is a step of its own, in the order that they are given.

    pip install 'hera[yaml]>=7,<8'
    python argo_hera.py preprocess.yaml train.yaml evaluate.yaml | argo submit -

The steps are those of argo-workflow.yaml: a job's name is the workflow's and the file's own, a step that Argo loses finds
its job again, and a workflow that does not succeed leaves its jobs suspended. docs/argo.md says why.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from hera.workflows import Parameter, Resource, Step, Steps, Workflow
from hera.workflows.models import ContinueOn, RetryStrategy, ValueFrom

NAME = "{{workflow.name}}"
ARGOS_OWN_POD_IS_LOST = (
    'lastRetry.status == "Error" || !(lastRetry.message startsWith "main: Error (exit code 64)") '
    '|| lastRetry.message contains "context canceled"'
)


def training_job(path: Path) -> dict[str, Any]:
    """The TrainingJob of a file, under a name that is the same however often the step is tried."""
    documents = yaml.safe_load_all(path.read_text())
    job: dict[str, Any] = next(each for each in documents if each["kind"] == "TrainingJob")
    job["metadata"]["name"] = f"{NAME}-{path.stem}"
    job["metadata"]["labels"] = {"workflows.argoproj.io/workflow": NAME}
    job["spec"]["suspend"] = False  # so that a workflow that is tried again wakes the job that its end put to sleep
    return job


def step_of(path: Path) -> Resource:
    """The template that makes the job and waits for its end."""
    return Resource(
        name=path.stem,
        action="apply",
        manifest=yaml.safe_dump(training_job(path), sort_keys=False),
        set_owner_reference=True,
        success_condition="status.succeeded == 1",
        failure_condition="status.failed == 1",
        retry_strategy=RetryStrategy(limit="10", retry_policy="Always", expression=ARGOS_OWN_POD_IS_LOST),
        outputs=[
            Parameter(name="output", value_from=ValueFrom(json_path="{.status.output.path}", default="")),
            Parameter(name="model", value_from=ValueFrom(json_path="{.status.output.model}", default="")),
        ],
    )


def suspending() -> Resource:
    """The template that has a job save and free its GPUs."""
    job = {
        "apiVersion": "oarlock.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": f"{NAME}-{{{{inputs.parameters.step}}}}"},
        "spec": {"suspend": True},
    }
    return Resource(
        name="suspend",
        action="patch",
        merge_strategy="merge",
        manifest=yaml.safe_dump(job),
        inputs=[Parameter(name="step")],
    )


def workflow(paths: list[Path]) -> Workflow:
    """The jobs of the files, one after the other."""
    with Workflow(
        generate_name="flux-", entrypoint="pipeline", on_exit="release", service_account_name="oarlock-workflow"
    ) as made:
        templates = [step_of(path) for path in paths]
        suspend = suspending()
        with Steps(name="pipeline"):
            for template in templates:
                Step(name=template.name, template=template)
        with Steps(name="release") as release, release.parallel():
            for template in templates:
                Step(
                    name=template.name,
                    template=suspend,
                    arguments={"step": template.name},
                    when="{{workflow.status}} != Succeeded",
                    continue_on=ContinueOn(failed=True, error=True),
                )
    return made


if __name__ == "__main__":
    sys.stdout.write(workflow([Path(argument) for argument in sys.argv[1:]]).to_yaml())
