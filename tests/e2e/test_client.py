"""The verbs of `oarlock` on a real cluster: one job, whose life they use up in the order of these tests; what they refuse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import yaml

from oarlock.access import plain_context
from oarlock.cli.main import app
from oarlock.cluster import connect
from oarlock.errors import ForbiddenError
from oarlock.exit_codes import ExitCode
from oarlock.leader import find_leader
from oarlock_local import patience
from tests.e2e.command import PROGRAMS, Command, Followed, breaks
from tests.e2e.jobs import EXAMPLE, Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]

DOCS = Path(__file__).parents[2] / "docs"
NAME, SHORT = "verbs", "verbs-short"
STEPS = 5000
ASKED_OF_A_JOB = (
    ["get", NAME],
    ["why", NAME],
    ["report", NAME, "--file", "-"],
    ["logs", NAME],
    ["events", NAME],
    ["faults", NAME],
    ["wait", NAME],
    ["suspend", NAME],
    ["resume", NAME],
    ["resize", NAME, "--nodes", "1"],
    ["save", NAME],
    ["stacks", NAME],
    ["drill", NAME],
    ["stacks", NAME],
    ["stop", NAME],
    ["delete", NAME],
    ["ls"],
    ["top"],
)
ASKED_OF_NODES = (["nodes"], ["uncordon", "node-1"])


@pytest.fixture(scope="module")
def oarlock(jobs: Jobs) -> Iterator[Command]:
    """The command, led to the cluster by its kubeconfig."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(jobs.cluster.kubeconfig))
        yield Command({**os.environ, "COLUMNS": "200", "LINES": "50"})


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """A file with the example under another name, on one GPU a node."""

    def write(name: str, *, nodes: int, steps: int) -> str:
        job = yaml.safe_load(EXAMPLE.read_text())
        job["metadata"]["name"] = name
        job["spec"].update(nodes=nodes, gpusPerNode=1)
        job["spec"]["training"]["optimizer"]["learningRate"] = 0.001
        job["spec"]["training"].update(steps=steps, checkpoint={"intervalSteps": 10, "keep": 3})
        path = tmp_path_factory.mktemp("manifests") / f"{name}.yaml"
        path.write_text(json.dumps(job))
        return str(path)

    return write


@pytest.fixture(scope="module")
def trained(jobs: Jobs, oarlock: Command, manifest: Callable[..., str]) -> Iterator[Followed]:
    """The logs of a job that trains, followed from before its first pod."""
    oarlock("submit", "-f", manifest(NAME, nodes=2, steps=STEPS))
    with oarlock.started("logs", NAME, "-f", "-o", "jsonl") as process:
        trains(jobs, 1)
        yield Followed(process)
    jobs.delete(NAME)


@pytest.fixture(scope="module")
def stranger(jobs: Jobs, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The kubeconfig of an account without any right."""
    jobs.cluster.kubectl("create", "serviceaccount", "stranger")
    config = yaml.safe_load(jobs.cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": jobs.cluster.kubectl("create", "token", "stranger").strip()}
    path = tmp_path_factory.mktemp("stranger") / "config"
    path.write_text(yaml.safe_dump(config))
    return str(path)


def trains(jobs: Jobs, attempt: int) -> None:
    status = jobs.wait_for_checkpoint_of(NAME, attempt)
    assert status["attempt"] == attempt, json.dumps(status["attempts"])


def test_no_verb_is_left_out() -> None:
    here = {verb for verb, *_ in (*ASKED_OF_A_JOB, *ASKED_OF_NODES)} | {"submit"}
    assert {verb.name for verb in app.registered_commands} == here | {"exit-codes", "import", "plan", "web"}


def test_the_clusters_kubeconfig_needs_no_kubernetes_client(jobs: Jobs) -> None:
    assert plain_context(jobs.cluster.kubeconfig, None)


def test_a_dry_run_makes_nothing(jobs: Jobs, oarlock: Command, manifest: Callable[..., str]) -> None:
    assert oarlock.json("submit", "-f", manifest("dry", nodes=2, steps=1), "--dry-run")["metadata"]["name"] == "dry"
    assert jobs.phase("dry") == ""


def test_a_misspelled_field_is_refused_with_the_one_that_was_meant(
    oarlock: Command, manifest: Callable[..., str], tmp_path: Path
) -> None:
    job = json.loads(Path(manifest("dry", nodes=2, steps=1)).read_text())
    job["spec"]["training"]["batchsize"] = 2
    job["spec"]["training"]["data"]["datasets"][0]["repeat"] = 3
    (tmp_path / "job.json").write_text(json.dumps(job))
    said = oarlock("submit", "-f", str(tmp_path / "job.json"), "--dry-run", code=ExitCode.REFUSED).err
    assert "spec.training.batchsize: there is no such field; did you mean batchSize?" in said, said
    assert "spec.training.data.datasets[0].repeat: there is no such field; did you mean repeats?" in said


@pytest.mark.usefixtures("trained")
def test_what_is_read_shows_the_job_that_trains(oarlock: Command, tmp_path: Path) -> None:
    (row,) = [one for one in oarlock.json("ls")["items"] if one["name"] == NAME]
    assert (row["phase"], row["nodes"], row["gpus"], row["totalSteps"]) == ("Running", 2, 2, STEPS)
    assert row["loss"] > 0
    assert NAME in oarlock("ls", "-A", "-o", "name").out
    assert NAME in oarlock("top").out
    assert "Running" in oarlock("get", NAME, "-o", "wide").out
    assert oarlock.json("get", NAME)["kind"] == "TrainingJob"
    assert f"pod/{NAME}-1-0" in oarlock("events", NAME).out
    assert oarlock("faults", NAME).out == ""
    assert "Training: attempt 1 trains" in oarlock("why", NAME).out
    page = tmp_path / "verbs.html"
    assert oarlock("report", NAME, "--file", str(page)).out == f"{page}\n"
    assert NAME in page.read_text()
    told = oarlock("logs", NAME, "--since", "1h").out
    assert "attempt 1, pod 0: " in told
    assert "attempt 1, pod 1: " in told
    assert "attempt 1, pod 0: " not in oarlock("logs", NAME, "--rank", "1").out
    assert "2 s" in oarlock("wait", NAME, "--timeout", "2", code=2).err


@pytest.mark.usefixtures("trained")
def test_what_is_printed_as_json_keeps_to_its_schema(oarlock: Command) -> None:
    lists, story = (json.loads((DOCS / f"{name}-v1.schema.json").read_text()) for name in ("cli", "why"))
    for arguments in (["ls"], ["top"], ["events", NAME], ["nodes"]):
        told = oarlock.json(*arguments)
        assert told["items"], arguments
        assert breaks(told, lists, of=lists) == []
    assert breaks(oarlock.json("faults", NAME), lists, of=lists) == []
    assert breaks(oarlock.json("why", NAME), story, of=story) == []


@pytest.mark.usefixtures("trained", "interruptible")
def test_what_is_live_goes_on_until_ctrl_c(oarlock: Command) -> None:
    with oarlock.on_a_terminal("top") as (top, drawn), oarlock.on_a_terminal("ls", "-w") as (ls, listed):
        for process, matches in ((top, drawn), (ls, listed)):
            assert len(matches(rf"{NAME} .* (\d+)/{STEPS}", 2)) >= 2, "it shows another step without being asked"
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=patience.SECONDS) == 130


@pytest.mark.usefixtures("trained")
def test_a_pipe_that_is_closed_early_ends_what_writes_into_it(oarlock: Command) -> None:
    with oarlock.started("logs", NAME, "-f", stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        assert " attempt 1, pod " in process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=patience.SECONDS) == 141
        assert "rror" not in process.stderr.read()


@pytest.mark.usefixtures("trained")
def test_who_may_not_what_is_not_there_and_who_does_not_answer_are_one_line_and_a_code_each(
    jobs: Jobs, oarlock: Command, stranger: str, manifest: Callable[..., str], tmp_path: Path
) -> None:
    down = yaml.safe_load(jobs.cluster.kubeconfig.read_text())
    down["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    (tmp_path / "down").write_text(yaml.safe_dump(down))
    doors = {5: ["--kubeconfig", stranger], 4: ["-n", "nowhere"], 6: ["--kubeconfig", str(tmp_path / "down")]}
    submit = ["submit", "-f", manifest(NAME, nodes=2, steps=STEPS)]
    before = jobs.status(NAME)["attempt"]
    for code, door in doors.items():
        for verb in (*ASKED_OF_A_JOB, submit, *(ASKED_OF_NODES if code != 4 else ())):
            ended = oarlock(*verb, *door, code=code)
            assert (ended.out, ended.err.count("\n")) == ("", 1), (verb, door, ended)
            assert ended.err.startswith("oarlock: ")
    oarlock("uncordon", "node-9", code=4)
    oarlock("ls", "--kubeconfig", "/nowhere", code=6)
    assert (jobs.status(NAME)["attempt"], jobs.phase(NAME)) == (before, "Running")


@pytest.mark.usefixtures("trained")
def test_figures_and_pictures_are_told_to_who_may_forward_ports_and_not_to_the_pod_network(jobs: Jobs) -> None:
    cluster = connect(kubeconfig=str(jobs.cluster.kubeconfig))
    uid = cluster.get(f"/apis/oarlock.dev/v1alpha1/namespaces/default/trainingjobs/{NAME}")["metadata"]["uid"]
    leader = find_leader(cluster, namespace="default", job=NAME, uid=uid)
    attempt, steps = leader.figures(since=1)
    assert attempt == 1
    assert [one.figures.step for one in steps] == list(range(2, 2 + len(steps)))
    assert leader.pictures() == ""
    # The API server's own proxy comes by the pod network.
    with pytest.raises(ForbiddenError, match="from within"):
        cluster.get(f"/api/v1/namespaces/default/pods/{NAME}-1-0:9400/proxy/figures")


@pytest.mark.usefixtures("trained")
def test_shells_and_kubectl_complete_what_the_cluster_has(jobs: Jobs, oarlock: Command) -> None:
    path = os.pathsep.join([str(jobs.cluster.kubectl_path.parent), str(PROGRAMS), os.environ["PATH"]])
    environment = {**oarlock.environment, "PATH": path}

    def said(*command: str) -> list[str]:
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    def bash(*words: str) -> list[str]:
        script = 'eval "$(_OARLOCK_COMPLETE=source_bash oarlock)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        script += '_oarlock_completion oarlock; printf "%s\\n" "${COMPREPLY[@]}"'
        return said("bash", "--norc", "-c", script, "bash", *words)

    assert bash("oarlock", "dr") == ["drill"]
    assert bash("oarlock", "why", "ver") == [NAME]
    assert bash("oarlock", "why", "-n", "kube-s") == ["kube-system"]
    assert bash("oarlock", "uncordon", "node-") == sorted(jobs.cluster.nodes)
    assert said("kubectl_complete-oarlock", "why", "ver") == [NAME, ":4"]
    assert NAME in said(str(jobs.cluster.kubectl_path), "oarlock", "ls", "-o", "name")


@pytest.mark.usefixtures("trained")
def test_a_drill_measures_whether_the_grace_period_is_long_enough(jobs: Jobs, oarlock: Command) -> None:
    assert " is saved after " in oarlock("drill", NAME).out
    status = jobs.wait(NAME, "what was measured", lambda status: "evictionReadiness" in status)
    measured = status["evictionReadiness"]
    assert (measured["by"], measured["attempt"]) == ("Drill", 1)
    assert 0 < measured["secondsNeeded"] < measured["graceSeconds"]


@pytest.mark.usefixtures("trained")
def test_a_node_is_given_back(jobs: Jobs, oarlock: Command) -> None:
    def cordoned() -> dict[str, Any]:
        return {node["name"]: node["cordoned"] for node in oarlock.json("nodes")["items"]}

    # The job's own nodes would be left at once.
    (free,) = set(cordoned()) - jobs.nodes(NAME)
    jobs.cluster.kubectl("cordon", free)
    assert cordoned()[free]
    oarlock("uncordon", free)
    assert not cordoned()[free]


def test_a_job_is_suspended_resumed_resized_saved_and_stopped_and_its_logs_go_through_all_attempts(
    jobs: Jobs, oarlock: Command, manifest: Callable[..., str], trained: Followed
) -> None:
    oarlock("suspend", NAME)
    oarlock("wait", NAME, "--timeout", "120", code=3)
    jobs.cluster.kubectl("wait", "--for=delete", "pod", "-l", f"oarlock.dev/job={NAME}", patience.KUBECTL)
    oarlock("logs", NAME, "--attempt", "1", code=8)
    assert_short_job_succeeds(jobs, oarlock, manifest(SHORT, nodes=1, steps=10))
    assert_the_notebook_trains()
    oarlock("resume", NAME)
    trains(jobs, 2)
    told = oarlock("stacks", NAME).out
    assert f"rank 0, in {NAME}-2-0:\n" in told
    assert f"rank 1, in {NAME}-2-1:\n" in told
    oarlock("resize", NAME, "--nodes", "1", "--gpus-per-node", "2", "--timeout", "120")
    trains(jobs, 3)
    assert len(jobs.pods(NAME)) == 1
    saved = int(oarlock("save", NAME).out.split()[2])
    asked = jobs.status(NAME)["request"]
    assert (asked["verb"], asked["state"], asked["step"], asked["attempt"]) == ("save", "Done", saved, 3)
    assert "newest checkpoint" in oarlock("stop", NAME, "--timeout", "120").out
    assert max(at for at, _ in jobs.checkpoints(NAME)) >= saved
    oarlock("get", NAME, code=4)

    lines = trained.to_its_end()
    assert {line["attempt"] for line in lines if line["kind"] == "line"} == {1, 2, 3}
    assert {line["rank"] for line in lines if line["attempt"] == 1 and line["kind"] == "line"} == {0, 1}
    assert lines[-1]["text"] == f"{NAME} was deleted"


def assert_short_job_succeeds(jobs: Jobs, oarlock: Command, manifest: str) -> None:
    """It is followed to its end, waited for, and deleted; its output tells the rest."""
    followed = oarlock("submit", "-f", manifest, "--follow").out
    assert f"default/{SHORT} is submitted\n" in followed
    assert "attempt 1, pod 0: " in followed
    assert f"{SHORT} has succeeded" in followed
    assert f"{SHORT} has succeeded" in oarlock("submit", "-f", manifest, "--wait").out
    oarlock("suspend", SHORT, code=8)
    oarlock("delete", SHORT)
    oarlock("get", SHORT, code=4)
    folder = str(jobs.output / SHORT)
    assert "Succeeded" in oarlock("why", "--path", folder).out
    assert "attempt 1, pod 0: " in oarlock("logs", "--path", folder).out
    assert SHORT in oarlock("report", "--path", folder, "--file", "-").out


def assert_the_notebook_trains() -> None:
    """The examples' notebook, from its first cell to its last."""
    names: dict[str, Any] = {}
    with chdir(EXAMPLE.parent):
        for cell in json.loads(Path("client.ipynb").read_text())["cells"]:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)  # noqa: S102 - as Jupyter does
    assert (names["row"].phase, names["row"].step) == ("Succeeded", 20)
    assert names["job"].name == "notebook"
