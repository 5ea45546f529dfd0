"""What a forge runs is what a person runs, with as few rights as can be. No forge ran it yet: these tests read it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FILES = [*WORKFLOWS, *sorted((ROOT / ".github/actions").glob("*/action.yml"))]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
MAKE = re.compile(r'^(?:sudo -E env "PATH=\$PATH" )?make ((?:[a-z-]+ ?)+)(?: ?[A-Z_]+=\S+)*$')
LOGIN = re.compile(r"^docker login .* --password-stdin ")


def loaded(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(path.read_text())
    return content


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in WORKFLOWS:
        for name, job in loaded(path)["jobs"].items():
            yield f"{path.stem}/{name}", job


def steps(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Of a workflow or an action."""
    found: list[dict[str, Any]] = [step for job in content.get("jobs", {}).values() for step in job["steps"]]
    return [*found, *content.get("runs", {}).get("steps", [])]


JOBS = pytest.mark.parametrize("job", [pytest.param(job, id=name) for name, job in jobs()])
EVERY_FILE = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))


def test_there_are_workflows_for_lint_tests_images_and_a_release() -> None:
    assert [path.stem for path in WORKFLOWS] == ["images", "lint", "release", "tests"]


@JOBS
def test_a_job_runs_targets_of_make_that_a_person_can_run_and_nothing_else(job: dict[str, Any]) -> None:
    commands = [step["run"] for step in job["steps"] if "run" in step]
    made = [match[1].split() for command in commands if (match := MAKE.match(command))]
    assert made
    assert {target for targets in made for target in targets} <= TARGETS
    assert [command for command in commands if not MAKE.match(command) and not LOGIN.match(command)] == []


@JOBS
def test_a_job_ends_by_itself_and_leaves_no_login_in_the_checkout(job: dict[str, Any]) -> None:
    assert job["timeout-minutes"] <= 120
    (checkout,) = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
    assert checkout["with"]["persist-credentials"] is False


@JOBS
def test_a_job_has_no_rights_of_its_own(job: dict[str, Any]) -> None:
    assert "permissions" not in job


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_reads_the_checkout_and_writes_nothing(path: Path) -> None:
    assert loaded(path)["permissions"] == {"contents": "read"}


@EVERY_FILE
def test_every_action_is_pinned_by_its_commit_and_says_which_release_that_is(path: Path) -> None:
    used = re.findall(r"uses: (.*)$", path.read_text(), re.MULTILINE)
    assert len(used) == sum("uses" in step for step in steps(loaded(path)))
    foreign = [line for line in used if not line.startswith("./")]
    assert [line for line in foreign if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line)] == []


def test_an_action_is_pinned_to_one_commit_everywhere() -> None:
    used = {line for path in FILES for line in re.findall(r"uses: ([^.\s].*)$", path.read_text(), re.MULTILINE)}
    names = [line.partition("@")[0] for line in used]
    assert len(names) == len({*names}), sorted(used)


@EVERY_FILE
def test_what_others_typed_never_becomes_part_of_a_script(path: Path) -> None:
    """It comes in by the environment: an expression in a script is pasted into it."""
    assert not [step["run"] for step in steps(loaded(path)) if "${{" in step.get("run", "")]


@EVERY_FILE
def test_no_registry_and_no_host_is_named(path: Path) -> None:
    assert not re.findall(r"\b[\w-]+\.(?:io|com|org|net|dev)\b", path.read_text())


def test_only_one_job_publishes_and_only_where_somebody_asked_for_it() -> None:
    publishing = {name: job for name, job in jobs() if any("PUBLISH=" in step.get("run", "") for step in job["steps"])}
    assert publishing.keys() == {"release/publish"}
    assert publishing["release/publish"]["if"] == "${{ inputs.publish }}"
    assert publishing["release/publish"]["environment"] == "release"
    with_secrets = [name for name, job in jobs() if "secrets." in json.dumps(job)]
    assert with_secrets == ["release/publish"]
    (asked,) = [path for path in WORKFLOWS if path.stem == "release"]
    # YAML 1.1 reads the key `on` as true.
    events: dict[Any, Any] = {**loaded(asked)}
    assert events[True]["workflow_dispatch"]["inputs"]["publish"]["default"] is False


def test_whoever_publishes_installs_and_builds_before_the_login_and_takes_nothing_that_other_runs_left() -> None:
    (job,) = [job for name, job in jobs() if name == "release/publish"]
    (login,) = [number for number, step in enumerate(job["steps"]) if LOGIN.match(step.get("run", ""))]
    before = [step["run"] for step in job["steps"][:login] if "run" in step]
    assert before == ["make setup docs sbom"]
    assert "secrets." not in json.dumps(job["steps"][:login])
    (prepare,) = [step for step in job["steps"] if step.get("uses", "").endswith("/prepare")]
    assert prepare["with"] == {"restore": "false"}
    (action,) = [path for path in FILES if path.parent.name == "prepare"]
    (cache,) = [step for step in steps(loaded(action)) if step["uses"].startswith("actions/cache")]
    assert cache["if"] == "inputs.restore == 'true'"


def test_without_variables_of_the_project_images_have_their_default_name_and_nobody_logs_in() -> None:
    (path,) = [path for path in WORKFLOWS if path.stem == "release"]
    (default,) = re.findall(r"^IMAGE_PREFIX := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert loaded(path)["env"]["IMAGE_PREFIX"] == f"${{{{ vars.IMAGE_PREFIX || '{default}' }}}}"
    (login,) = [step for step in steps(loaded(path)) if LOGIN.match(step.get("run", ""))]
    assert login["if"] == "vars.IMAGE_PREFIX != ''"


def test_the_tests_have_the_history_that_an_upgrade_begins_in() -> None:
    (path,) = [path for path in WORKFLOWS if path.stem == "tests"]
    (checkout,) = [step for step in steps(loaded(path)) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkout["with"]["fetch-depth"] == 0


def test_actionlint_finds_nothing() -> None:
    program = shutil.which("actionlint")
    if program is None:
        pytest.skip("needs actionlint on PATH: go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.7")
    result = subprocess.run([program, "-no-color", *map(str, WORKFLOWS)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_a_commit_is_held_to_what_make_lint_finds() -> None:
    (repository,) = loaded(ROOT / ".pre-commit-config.yaml")["repos"]
    (hook,) = repository["hooks"]
    assert (hook["entry"], hook["pass_filenames"], hook["always_run"]) == ("make lint", False, True)


def test_the_dev_container_has_the_go_that_the_modules_ask_for_and_what_make_asks_of_a_machine() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert container["postCreateCommand"] == "make setup"
    text = (ROOT / ".devcontainer" / container["build"]["dockerfile"]).read_text()
    (image,) = re.findall(r"^FROM golang:(\d+\.\d+)-bookworm$", text, re.MULTILINE)
    asked = {
        tuple(map(int, version.split(".")[:2]))
        for path in ROOT.glob("local/go/*/go.mod")
        for version in re.findall(r"^go ([\d.]+)$", path.read_text(), re.MULTILINE)
    }
    assert tuple(map(int, image.split("."))) >= max(asked)
    packages = text.replace("\\\n", " ").split()
    assert {"chromium", "git", "iproute2", "make", "python3", "python3-venv", "util-linux"} <= {*packages}


def test_the_dev_container_can_make_nodes_and_read_a_checkout_of_another_user() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert container["privileged"] is True
    assert container["runArgs"] == ["--cgroupns=host"]
    dockerfile = (ROOT / ".devcontainer" / container["build"]["dockerfile"]).read_text()
    assert "\nRUN git config --system --add safe.directory '*'\n" in dockerfile
