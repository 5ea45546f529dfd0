"""The brakes of cordoning: none that a job could move, and each says why it holds."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from jobs import START, job, spec
from worlds import World

from oarlock_operator.model.observation import Defaults
from oarlock_operator.model.observed_nodes import Brakes, CordonMark, Ledger, Pool, PoolNode
from oarlock_operator.model.plan import CordonNode, LatchBreaker, Plan

POOL = Pool(size=20, schedulable=20)
RECENT = CordonMark("other", "team/another", START, START)
OLD = CordonMark("other", "team/another", START - timedelta(days=2), START - timedelta(days=2))
GPUS = frozenset({"nvidia.com/gpu"})


def broken(*, pool: Pool = POOL, world: World | None = None, **changes: Any) -> World:
    """A gang of which rank 1 has ended with a report against its node."""
    world = world or World(job=job(spec=spec(**changes)), may_cordon=True, pool=pool)
    world.running()
    world.end(1, 80, xid=79)
    return world


def cordons(plan: Plan) -> list[str]:
    return [action.node for action in plan.actions if isinstance(action, CordonNode)]


def refused(world: World) -> str:
    """Why nothing is cordoned."""
    plan = world.one_pass()
    assert cordons(plan) == []
    assert world.job.status.avoided_nodes[0].name == "node-1", "the job itself keeps off in any case"
    return next(event.message for event in plan.events if event.reason == "CordonRefused")


@pytest.mark.parametrize(
    ("pool", "words", "latches"),
    [
        (replace(POOL, ours=(RECENT, replace(RECENT, node="third"))), "2 are allowed", True),
        (replace(POOL, ours=tuple(replace(OLD, node=f"n{i}") for i in range(10))), "more than half", True),
        (replace(POOL, ours=(replace(RECENT, job="default/flux"),)), "this job had a node cordoned", False),
        (replace(POOL, ledger=Ledger((replace(RECENT, job="default/another"),))), "1 are its share", False),
        (replace(POOL, schedulable=2), "1 nodes would be left for a gang of 2", False),
        (Pool(size=1, schedulable=1), "0 nodes would be left for a gang of 2", False),
        (Pool(size=1, schedulable=1, brakes=Brakes(allow_below_gang=True)), "more than half of the 1 nodes", False),
        (replace(POOL, latched="somebody"), "the breaker is latched (somebody)", False),
        (replace(POOL, unreadable="403 Forbidden"), "403 Forbidden", False),
        (replace(POOL, members={"node-1": PoolNode(uid="x")}), "none of the nodes with nvidia.com/gpu", False),
        (
            replace(POOL, members={"node-1": PoolNode(uid="x", resources=GPUS, gpus=frozenset({"GPU-7"}))}),
            "none of those that the node lists",
            False,
        ),
    ],
    ids=[
        "number",
        "half",
        "one per job",
        "share of the namespace",
        "below the gang",
        "the only node",
        "the only node, allowed below the gang",
        "latched",
        "unreadable",
        "no such GPUs",
        "another GPU",
    ],
)
def test_every_brake_holds_and_says_so(pool: Pool, words: str, latches: bool) -> None:  # noqa: FBT001
    world = broken(pool=pool)
    plan = world.one_pass()
    assert cordons(plan) == []
    told = next(event.message for event in plan.events if event.reason == "CordonRefused")
    assert words in told
    assert any(isinstance(action, LatchBreaker) for action in plan.actions) == latches
    assert world.job.status.avoided_nodes[0].name == "node-1"


def test_nodes_are_left_for_the_spares_of_a_gang_too() -> None:
    spares = job(spec=spec(spares=1, recovery={"inPlace": "Auto"}))
    keyed = Defaults(trainer_image="trainer:test", keys=(b"k" * 32,))
    pool = replace(POOL, schedulable=3)
    world = broken(world=World(job=spares, may_cordon=True, pool=pool, defaults=keyed))
    assert (
        refused(world)
        == "node node-1 (GPUFault in attempt 1) is not cordoned, only avoided: 2 nodes would be left for a gang of 3"
    )


@pytest.mark.parametrize(
    "pool",
    [
        replace(POOL, ours=(RECENT,)),
        replace(POOL, size=200, schedulable=200, ours=tuple(replace(RECENT, node=f"n{i}") for i in range(19))),
        replace(POOL, size=200, schedulable=200, ours=(replace(RECENT, job="default/another"),)),
        replace(POOL, schedulable=2, brakes=Brakes(allow_below_gang=True)),
        replace(POOL, members={"node-1": PoolNode(uid="uid-of-node-1", resources=GPUS, gpus=frozenset({"165"}))}),
    ],
    ids=["one of two", "a share of a large pool", "of a namespace's, too", "allowed below the gang", "a known serial"],
)
def test_within_the_brakes_it_is_cordoned(pool: Pool) -> None:
    assert cordons(broken(pool=pool).one_pass()) == ["node-1"]


def test_the_evidence_says_whether_the_node_lists_its_gpus_and_how_to_have_it_do_so() -> None:
    node = PoolNode(uid="uid-of-node-1", resources=GPUS, gpus=frozenset({"GPU-5", "GPU-6"}))
    told = {"the node lists this GPU": {"node-1": node}, "annotate nodes with oarlock.dev/gpus: docs/gpu-faults.md": {}}
    for words, members in told.items():
        world = broken(pool=replace(POOL, members=members))
        world.one_pass()
        assert words in (world.job.status.cordoned_nodes[0].reason or "")


def test_a_job_without_gpus_cordons_nothing_however_often_its_pods_say_so() -> None:
    """Its values once made the pool a thousand nodes, and a hundred cordons an hour."""
    world = World(job=job(spec=spec(gpusPerNode=0)), may_cordon=True, pool=Pool(size=1000, schedulable=1000))
    for _ in range(20):
        world.running()
        world.end(1, 80, xid=79)
        assert cordons(world.one_pass()) == []
        world.kubelets()
        world.now += timedelta(seconds=400)
        world.settle()
        if world.job.status.completion_time:
            world = World(job=job(spec=spec(gpusPerNode=0)), may_cordon=True, pool=world.pool)
    assert world.fleet.effects == []
    assert not any(node.strikes for node in world.nodes.values())


def test_what_a_job_calls_a_gpu_does_not_make_it_one() -> None:
    assert "none of the resources that are GPUs" in refused(broken(pod={"gpuResource": "example.com/pods"}))


CUSTOM: dict[str, Any] = {"training": None, "custom": {"command": ["true"]}}


EVERYDAY = (
    *("NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_TIMEOUT", "TORCH_NCCL_BLOCKING_WAIT", "HF_HOME", "HF_HUB_OFFLINE"),
    *(
        "WANDB_API_KEY",
        "MLFLOW_TRACKING_URI",
        "AWS_REGION",
        "OMP_NUM_THREADS",
        "HTTPS_PROXY",
        "no_proxy",
        "TZ",
        "LC_ALL",
    ),
    *("TORCH_LOGS", "PYTORCH_CUDA_ALLOC_CONF", "TOKENIZERS_PARALLELISM", "OARLOCK_SIMULATE_GPUS"),
)
LOADING = (
    *("NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_CONF_FILE", "NVML_LIBRARY", "CC", "TRITON_CACHE_DIR", "HOME"),
    *("AWS_CONFIG_FILE", "CUDA_INJECTION64_PATH", "PATH", "PYTHONPATH", "GCONV_PATH", "ANYTHING_ELSE"),
)
AS_IN_THE_EXAMPLE = {
    "image": "site/ml/x:1",
    "env": [
        {"name": "ACCELERATE_CONFIG_PATH", "value": "/run/oarlock/accelerate.yaml"},
        {"name": "ACCELERATE_EXTRA_ARGS", "value": "--use_deepspeed"},
        {"name": "HF_HOME", "value": "/output/huggingface"},
        {"name": "HOME", "value": "/tmp"},
    ],
}
PROBE = {"exec": {"command": ["sh"]}}
POST_START = {"postStart": {"exec": {"command": ["sh"]}}}
ANOTHER = {"name": "another", "image": "somebody/else:1"}


def mounting(path: str) -> dict[str, Any]:
    """A pod with a claim mounted at a path."""
    volume = {"name": "more", "persistentVolumeClaim": {"claimName": "more"}}
    return {"volumes": [volume], "volumeMounts": [{"name": "more", "mountPath": path}]}


def setting(*names: str) -> dict[str, Any]:
    """A job that sets variables."""
    return {"pod": {"env": [{"name": name, "value": "1"} for name in names]}}


def writing_to(path: str) -> dict[str, Any]:
    """An output that is mounted at a path."""
    return {"mountPath": path, "persistentVolumeClaim": {"claimName": "shared"}}


def changing(volume: str, **fields: Any) -> dict[str, Any]:
    """A patch of one of Oarlock's own volumes."""
    return {"pod": {"patch": {"volumes": [{"name": volume, **fields}]}}}


def patching(**fields: Any) -> dict[str, Any]:
    """A patch of the trainer's container."""
    return {"containers": [{"name": "trainer", **fields}]}


@pytest.mark.parametrize(
    ("changes", "images", "believed"),
    [
        pytest.param({}, (), True, id="the operator's own trainer"),
        pytest.param({"pod": {"image": "somebody/trainer:1"}}, (), False, id="another image"),
        pytest.param({"pod": {"image": "site/ml/trainer:1"}}, ("site/ml/",), True, id="one that the site vouches for"),
        pytest.param({"pod": {"image": "site/mlx:1"}}, ("site/ml/",), False, id="one that only looks like it"),
        pytest.param({"pod": {"image": "site.io/t:2"}}, ("site.io/t",), True, id="any tag of the one that is named"),
        pytest.param({"pod": {"image": "site.io/t2:1"}}, ("site.io/t",), False, id="a name that goes on"),
        pytest.param({"pod": {"image": "site.io/t:1.2"}}, ("site.io/t:1",), False, id="a tag that goes on"),
        pytest.param({"pod": {"image": "site.io/t:1"}}, ("site.io",), True, id="one of a registry"),
        pytest.param({"pod": {"image": "site.io.evil.org/t:1"}}, ("site.io",), False, id="a registry that goes on"),
        pytest.param({"pod": {"image": "site.io:1"}}, ("site.io",), False, id="what Docker Hub has under its name"),
        pytest.param({**CUSTOM, "pod": {"image": "x"}}, (), False, id="a program of the job's own"),
        pytest.param({"pod": {"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}}, (), True, id="a harmless variable"),
        pytest.param({"pod": {"env": [{"name": "LD_PRELOAD", "value": "x"}]}}, (), False, id="a preloaded library"),
        pytest.param(setting(*EVERYDAY), (), True, id="the variables that people set"),
        *(pytest.param(setting(name), (), False, id=f"the variable {name}") for name in LOADING),
        pytest.param({"pod": {"envFrom": [{"configMapRef": {"name": "x"}}]}}, (), False, id="variables from elsewhere"),
        pytest.param({"pod": mounting("/data")}, (), True, id="a mount beside the program"),
        pytest.param({"pod": mounting("/opt/venv")}, (), False, id="a mount over the program"),
        pytest.param({"pod": mounting("//opt/venv")}, (), False, id="the same, written otherwise"),
        pytest.param({"pod": mounting("/data/../opt")}, (), False, id="the same, by a detour"),
        pytest.param({"pod": mounting("/var")}, (), False, id="a mount above what the agent uses"),
        pytest.param({"pod": mounting("/tmp/.config")}, (), False, id="settings in the program's home"),
        pytest.param({"pod": mounting("/dev/nothing")}, (), False, id="a mount where its last words go"),
        pytest.param({"output": writing_to("/mnt/results")}, (), True, id="an output of its own place"),
        pytest.param({"output": writing_to("/opt/oarlock")}, (), False, id="an output over the program"),
        pytest.param({"output": writing_to("/usr/lib/python3")}, (), False, id="an output below a folder of programs"),
        pytest.param({"pod": {"runtimeClassName": "nvidia"}}, (), True, id="a runtime that an administrator made"),
        pytest.param(changing("tmp", emptyDir={"sizeLimit": "1Gi"}), (), True, id="a limit of the temporary files"),
        pytest.param(changing("tmp", emptyDir=None, hostPath={"path": "/x"}), (), False, id="others' temporary files"),
        pytest.param(changing("shared-memory", emptyDir=None, hostPath={"path": "/x"}), (), False, id="others' memory"),
        pytest.param({"pod": {"patch": {"priority": 1}}}, (), True, id="a patch beside the containers"),
        pytest.param({"pod": {"patch": patching(resources={"limits": {"rdma/ib": 1}})}}, (), True, id="more devices"),
        pytest.param({"pod": {"patch": patching(lifecycle=POST_START)}}, (), False, id="a command by the patch"),
        pytest.param({"pod": {"patch": patching(readinessProbe=PROBE)}}, (), False, id="a command by its probe"),
        pytest.param({"pod": {"patch": {"hostPID": True}}}, (), False, id="processes of others"),
        pytest.param({"pod": {"patch": {"initContainers": [ANOTHER]}}}, (), False, id="a program that runs before"),
        pytest.param({"pod": {"patch": {"containers": [ANOTHER]}}}, (), False, id="a program beside it"),
        pytest.param({**CUSTOM, "pod": {"image": "trainer:test"}}, (), False, id="the same in the trainer's image"),
        pytest.param({**CUSTOM, "pod": {"image": "site/ml/x:1"}}, ("site/ml/",), True, id="one in a vouched image"),
        pytest.param({**CUSTOM, "pod": AS_IN_THE_EXAMPLE}, ("site/ml/",), True, id="one that is set up as the example"),
    ],
)
def test_a_report_is_only_a_claim_unless_the_site_vouches_for_the_program_that_wrote_it(
    changes: dict[str, Any],
    images: tuple[str, ...],
    believed: bool,  # noqa: FBT001
) -> None:
    world = World(job=job(spec=spec(**changes)), may_cordon=True, pool=POOL)
    world.defaults = replace(world.defaults, cordon_images=images)
    broken(world=world)
    if believed:
        assert cordons(world.one_pass()) == ["node-1"]
    else:
        assert "only a claim" in refused(world)


def test_a_node_that_was_made_after_the_pod_got_its_place_is_another_one() -> None:
    node = PoolNode(uid="uid-of-node-1", made=START + timedelta(hours=1), resources=GPUS)
    world = broken(pool=replace(POOL, members={"node-1": node}))
    world.pods["flux-1-1"] = replace(world.pods["flux-1-1"], placed_at=START + timedelta(minutes=1))
    assert "another node had its name" in refused(world)


def test_an_operator_that_only_tells_needs_no_right_and_latches_no_breaker() -> None:
    crowded = replace(POOL, ours=(RECENT, replace(RECENT, node="third")))
    for pool, words in ((POOL, "would be cordoned"), (crowded, "would not be cordoned: 2 nodes")):
        world = World(job=job(), may_cordon=False, pool=pool)
        world.defaults = replace(world.defaults, cordon_dry_run=True)
        plan = broken(world=world).one_pass()
        assert not [action for action in plan.actions if isinstance(action, CordonNode | LatchBreaker)]
        assert words in next(event.message for event in plan.events if event.reason == "CordonDryRun")
        assert world.job.status.cordoned_nodes == ()


def test_what_stands_on_the_node_holds_facts_and_none_of_a_reports_prose() -> None:
    world = World(job=job(), may_cordon=True, pool=POOL)
    world.running()
    world.end(1, 80, xid=79)
    ending = world.pods["flux-1-1"].ending
    assert ending is not None
    assert ending.report is not None
    leaky = replace(ending.report, summary="ValueError: token hf_abcdef of https://user:secret@example.com")
    world.pods["flux-1-1"] = replace(world.pods["flux-1-1"], ending=replace(ending, report=leaky))
    action = next(action for action in world.one_pass().actions if isinstance(action, CordonNode))
    assert "hf_abcdef" not in action.reason
    assert action.reason.startswith("GPUFault in attempt 1: pod flux-1-1 on node-1: GPU 5 (GPU-5, serial 165) XID 79")
    assert action.gpu is not None
    assert (action.gpu.uuid, action.gpu.serial) == ("GPU-5", "165")
