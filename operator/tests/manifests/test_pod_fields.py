"""Every field of spec.pod shows in what is made of a job, and the API server takes every pod that is made so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from jobs import job, spec
from made_pods import environment
from processes import Api
from pydantic import BaseModel, ValidationError
from worlds import World

from oarlock_api.naming import camel_case
from oarlock_api.pod import Pod, Ports, Resources
from oarlock_api.pod_volumes import OWN_VOLUMES
from oarlock_local.patience import eventually
from oarlock_operator.manifests.config import job_file
from oarlock_operator.manifests.network_policy import network_policy
from oarlock_operator.manifests.pod import CONTAINER, pod
from oarlock_operator.manifests.service import service
from oarlock_operator.model.plan import CreatePods

if TYPE_CHECKING:
    from oarlock_local.cluster import Cluster

VOLUME = {"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}}
MOUNT = {"name": "cache", "mountPath": "/cache", "readOnly": True}
POD, TRAINER = "pod.spec", f"pod.spec.containers.{CONTAINER}"
SCALARS = {
    "hostname",
    "subdomain",
    "hostNetwork",
    "dnsPolicy",
    "restartPolicy",
    "runtimeClassName",
    "serviceAccountName",
}


@dataclass(frozen=True)
class Use:
    """What a job says in spec.pod, and what then stands where. Lists are indexed by number, or by an entry's name."""

    pod: dict[str, Any]
    shows: dict[str, Any] = field(default_factory=dict)


# One entry for each field of spec.pod, by its path.
FIELDS: dict[str, Use] = {
    "image": Use({"image": "mine:1"}, {f"{TRAINER}.image": "mine:1"}),
    "imagePullPolicy": Use({"imagePullPolicy": "Always"}, {f"{TRAINER}.imagePullPolicy": "Always"}),
    "imagePullSecrets": Use({"imagePullSecrets": [{"name": "r"}]}, {f"{POD}.imagePullSecrets": [{"name": "r"}]}),
    "resources.requests": Use(
        {"resources": {"requests": {"cpu": 0.5}}},
        {
            f"{TRAINER}.resources.requests": {"cpu": 0.5, "nvidia.com/gpu": "2"},
            f"{TRAINER}.resources.limits": {"nvidia.com/gpu": "2"},
        },
    ),
    "resources.limits": Use(
        {"resources": {"limits": {"memory": "64Gi", "rdma/hca": 1}}},
        {
            f"{TRAINER}.resources.requests": {"nvidia.com/gpu": "2"},
            f"{TRAINER}.resources.limits": {"memory": "64Gi", "rdma/hca": 1, "nvidia.com/gpu": "2"},
        },
    ),
    "resources.claims": Use(
        {
            "resources": {"claims": [{"name": "nic"}]},
            "patch": {"resourceClaims": [{"name": "nic", "resourceClaimTemplateName": "nic"}]},
        },
        {f"{TRAINER}.resources.claims": [{"name": "nic"}]},
    ),
    "env": Use(
        {
            "env": [
                {"name": "A", "value": ""},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
            ]
        },
        {
            f"{TRAINER}.env.A": {"name": "A", "value": ""},
            f"{TRAINER}.env.B.valueFrom.secretKeyRef": {"name": "s", "key": "k", "optional": True},
        },
    ),
    "envFrom": Use({"envFrom": [{"secretRef": {"name": "s"}}]}, {f"{TRAINER}.envFrom": [{"secretRef": {"name": "s"}}]}),
    "volumes": Use({"volumes": [VOLUME]}, {f"{POD}.volumes.cache": VOLUME}),
    "volumeMounts": Use({"volumes": [VOLUME], "volumeMounts": [MOUNT]}, {f"{TRAINER}.volumeMounts.cache": MOUNT}),
    "securityContext": Use(
        {"securityContext": {"runAsUser": 7, "supplementalGroups": [44]}},
        {f"{POD}.securityContext.runAsUser": 7, f"{POD}.securityContext.supplementalGroups": [44]},
    ),
    "serviceAccountName": Use(
        {"serviceAccountName": "s3-reader"},
        {f"{POD}.serviceAccountName": "s3-reader", f"{POD}.automountServiceAccountToken": True},
    ),
    "runtimeClassName": Use({"runtimeClassName": "nvidia"}, {f"{POD}.runtimeClassName": "nvidia"}),
    "labels": Use({"labels": {"team": "vision"}}, {"pod.metadata.labels.team": "vision"}),
    "annotations": Use({"annotations": {"note": "x y"}}, {"pod.metadata.annotations.note": "x y"}),
    "gpuResource": Use(
        {"gpuResource": "amd.com/gpu"},
        {
            f"{TRAINER}.resources.requests": {"amd.com/gpu": "2"},
            f"{TRAINER}.resources.limits": {"amd.com/gpu": "2"},
        },
    ),
    "sharedMemory": Use(
        {"sharedMemory": "8Gi"}, {f"{POD}.volumes.shared-memory.emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}
    ),
    "terminationGracePeriodSeconds": Use(
        {"terminationGracePeriodSeconds": 17}, {f"{POD}.terminationGracePeriodSeconds": 17}
    ),
    "networkPolicy": Use({"networkPolicy": "None"}, {"policy": None}),
    "hostNetwork": Use(
        {"hostNetwork": True},
        {
            f"{POD}.hostNetwork": True,
            f"{POD}.dnsPolicy": "ClusterFirstWithHostNet",
            f"{POD}.hostname": "flux-0",
            f"{POD}.subdomain": "flux",
            f"{TRAINER}.ports": [
                {"name": "rendezvous", "containerPort": 29500, "hostPort": 29500},
                {"name": "status", "containerPort": 9400, "hostPort": 9400},
                {"name": "link", "containerPort": 9401, "hostPort": 9401},
            ],
            f"{TRAINER}.env.OARLOCK_POD_IP.valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
        },
    ),
    "ports.rendezvous": Use(
        {"ports": {"rendezvous": 30500}},
        {
            "job.json.ports.rendezvous": 30500,
            "service.spec.ports.rendezvous.port": 30500,
        },
    ),
    "ports.status": Use(
        {"ports": {"status": 30400}},
        {
            f"{TRAINER}.ports.status.containerPort": 30400,
            f"{TRAINER}.readinessProbe.httpGet.port": "status",
            "job.json.ports.status": 30400,
        },
    ),
    "ports.link": Use({"ports": {"link": 30401}}, {"job.json.ports.link": 30401}),
    "patch": Use(
        {"patch": {"shareProcessNamespace": True, "containers": [{"name": CONTAINER, "stdin": True}]}},
        {f"{POD}.shareProcessNamespace": True, f"{TRAINER}.stdin": True},
    ),
}
TOGETHER: dict[str, Any] = {}
for _use in FIELDS.values():
    for _key, _value in _use.pod.items():
        TOGETHER[_key] = TOGETHER.get(_key, {}) | _value if isinstance(_value, dict) else _value


def made(uses: dict[str, Any], *, gpus: int = 2) -> dict[str, Any]:
    """What is made of a job for its first attempt, rank 0's pod among it."""
    the_spec = spec(pod=uses, gpusPerNode=gpus)
    the_job = job(spec=the_spec)
    return {
        "pod": pod(the_job, the_spec, attempt=1, rank=0, image=the_spec.pod.image or "trainer:1"),
        "service": service(the_job, 1),
        "policy": network_policy(the_job, the_spec, status_from=()),
        "job": {"json": json.loads(job_file(the_job, the_spec, 1).to_json())},
    }


def at(value: Any, path: str) -> Any:
    """What stands at a path, whose parts are kept apart by dots; None where nothing does."""
    for part in path.split("."):
        if isinstance(value, list):
            value = {entry["name"]: entry for entry in value}
        value = (value or {}).get(part)
    return value


def fields(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """Paths of the fields of a group and of the groups in it."""
    for name in model.model_fields:
        group = {"ports": Ports, "resources": Resources}.get(name)
        path = above + camel_case(name)
        yield from fields(group, f"{path}.") if group else [path]


def test_every_field_of_the_pod_has_its_row_here() -> None:
    assert sorted(fields(Pod)) == sorted(FIELDS)


@pytest.mark.parametrize("use", FIELDS.values(), ids=FIELDS)
def test_a_field_shows_where_it_belongs_and_nothing_else_would_have_put_it_there(use: Use) -> None:
    with_it, without = made(use.pod), made({})
    assert {path: at(with_it, path) for path in use.shows} == use.shows
    assert any(at(without, path) != value for path, value in use.shows.items())


def test_all_fields_together_show_as_each_does_alone() -> None:
    uses = {key: value for key, value in TOGETHER.items() if key not in ("ports", "gpuResource")}
    everything = made(uses)
    for path, use in FIELDS.items():
        if path.split(".")[0] in ("ports", "gpuResource", "resources"):
            continue
        assert {where: at(everything, where) for where in use.shows} == use.shows, path


def test_the_image_of_the_job_outranks_the_operator_s() -> None:
    for image, expected in (({}, "trainer:test"), ({"image": "mine:1"}, "mine:1")):
        plan = World(job=job(spec=spec(pod=image))).one_pass()
        pods = [manifest for action in plan.actions if isinstance(action, CreatePods) for manifest in action.manifests]
        assert {manifest["spec"]["containers"][0]["image"] for manifest in pods} == {expected}


def test_every_pod_that_is_made_is_told_its_cluster() -> None:
    plan = World(job=job(spec=spec())).one_pass()
    pods = [manifest for action in plan.actions if isinstance(action, CreatePods) for manifest in action.manifests]
    assert pods
    assert [environment(manifest)["OARLOCK_CLUSTER"] for manifest in pods] == ["lab"] * len(pods)


def test_without_gpus_only_what_the_job_asks_for_is_asked_for() -> None:
    asked = {"requests": {"cpu": 1}}
    assert at(made({"resources": asked}, gpus=0), f"{TRAINER}.resources") == asked


def test_names_and_places_that_a_job_may_not_take_are_those_that_a_pod_has() -> None:
    spec_ = made({})["pod"]["spec"]
    assert tuple(volume["name"] for volume in spec_["volumes"]) == OWN_VOLUMES
    for mount in spec_["containers"][0]["volumeMounts"]:
        if mount["name"] != "output":  # its place is the job's choice, which one field alone does not see
            with pytest.raises(ValidationError, match="take another mountPath"):
                spec(pod={"volumeMounts": [{"name": "mine", "mountPath": mount["mountPath"]}]})


@pytest.fixture(scope="module")
def api(control_plane: Cluster) -> Api:
    """An API with what the jobs of the table name."""
    api = Api(control_plane.kubeconfig)
    api.call("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "s3-reader"}})
    runtime = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
    api.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)
    return api


@pytest.mark.cluster
def test_the_api_server_takes_a_pod_with_each_field_and_drops_nothing_of_it(api: Api) -> None:
    eventually(lambda: api.find("/api/v1/namespaces/default/serviceaccounts/default"), "the default account")
    for path, use in [("nothing", Use({})), *FIELDS.items(), ("everything", Use(TOGETHER))]:
        manifest = made(use.pod)["pod"]
        taken = api.call("POST", "/api/v1/namespaces/default/pods?dryRun=All&fieldValidation=Strict", manifest)
        spec_, theirs = manifest["spec"], taken["spec"]
        assert {key: theirs.get(key) for key in spec_.keys() & SCALARS} == {
            key: spec_[key] for key in spec_.keys() & SCALARS
        }, path
        ports = [port | {"protocol": "TCP"} for port in spec_["containers"][0]["ports"]]
        assert theirs["containers"][0]["ports"] == ports, path
