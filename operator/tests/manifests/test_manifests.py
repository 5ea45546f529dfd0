"""The objects of a job: alike for every rank, locked down, without a secret, and the same whenever they are made."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import job, spec
from made_pods import container, environment, made, told
from pydantic import ValidationError

from oarlock_api.contract.environment import RESERVED, Variable, gang_environment, rendezvous_address
from oarlock_operator.manifests.config import job_file, output_directory
from oarlock_operator.manifests.ownership import output_mark
from oarlock_operator.manifests.pod import pod
from oarlock_operator.manifests.service import service

HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


MI = 1024**2
FULL: dict[str, Any] = {
    "pod": {
        "env": [{"name": "NCCL_DEBUG", "value": "INFO"}],
        "envFrom": [{"secretRef": {"name": "mine"}}],
        "labels": {"team": "vision"},
        "volumes": [{"name": "cache", "hostPath": {"path": "/cache"}}],
        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
        "resources": {"requests": {"cpu": "4"}},
    },
    "scheduling": {"nodeSelector": {"pool": "h100"}, "affinity": {"nodeAffinity": {"x": 1}}},
}


PATCHED: dict[str, Any] = {
    "pod": {
        "hostNetwork": True,
        "patch": {
            "shareProcessNamespace": True,
            "containers": [{"name": "trainer", "env": [{"name": "A", "value": "1"}], "stdin": True}],
        },
    }
}


HOOKED: dict[str, Any] = {"webhooks": [{"name": "chat", "urlSecretRef": {"name": "chat", "key": "url"}}]}


@pytest.mark.parametrize("changes", [{}, FULL, PATCHED, HOOKED, {"gpusPerNode": 0}, {"gpusPerNode": 8}])
def test_all_ranks_pods_are_alike_but_for_name_hostname_rank_label_and_environment(changes: dict[str, Any]) -> None:
    def shape(rank: int) -> str:
        manifest = made(rank, **changes)
        manifest["metadata"].pop("name")
        manifest["metadata"]["labels"].pop("oarlock.dev/rank")
        manifest["spec"].pop("hostname")
        container(manifest).pop("env")
        return json.dumps(manifest)

    assert shape(0) == shape(1) == shape(31)
    one, other = environment(made(0, **changes)), environment(made(1, **changes))
    of_rank_0 = {"MACHINE_RANK", "OARLOCK_HISTORY", "OARLOCK_SPEC", "OARLOCK_BACKOFF"}
    assert {name for name in one if one[name] != other.get(name)} == of_rank_0


def test_a_manifest_is_the_same_whenever_it_is_made() -> None:
    assert json.dumps(made(**FULL)) == json.dumps(made(**FULL))
    assert job_file(job(), spec(), 3).to_json() == job_file(job(), spec(), 3).to_json()


@pytest.mark.parametrize(
    ("nodes", "size", "bound"),
    [(4, "16Mi", 16 * MI), (4, "0", 0), (128, "16Mi", 8 * MI), (4, "1Gi", 256 * MI), (4000, "16Mi", MI)],
)
def test_all_logs_of_an_attempt_together_are_bounded_whatever_the_number_of_its_pods(
    nodes: int, size: str, bound: int
) -> None:
    asked = spec(nodes=nodes)
    history = asked.output.history.model_copy(update={"log_size": size})
    asked = asked.model_copy(update={"output": asked.output.model_copy(update={"history": history})})
    assert job_file(job(), asked, 1).history.log_bytes == bound


def test_a_pod_is_found_by_its_labels_and_goes_with_its_job() -> None:
    metadata = made(1, 7, **FULL)["metadata"]
    assert metadata["name"] == "flux-7-1"
    assert metadata["labels"] == {
        "team": "vision",
        "app.kubernetes.io/managed-by": "oarlock",
        "oarlock.dev/job": "flux",
        "oarlock.dev/job-uid": "uid-1",
        "oarlock.dev/attempt": "7",
        "oarlock.dev/rank": "1",
        "oarlock.dev/output": output_mark(job()),
    }
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "oarlock.dev/v1alpha1",
            "kind": "TrainingJob",
            "name": "flux",
            "uid": "uid-1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_argo_s_workflow_label_is_copied_from_the_job_and_no_other_label_is() -> None:
    labelled = job(labels={"workflows.argoproj.io/workflow": "wf-1", "other": "x"})
    labels = pod(labelled, spec(), attempt=1, rank=0, image="i")["metadata"]["labels"]
    assert labels["workflows.argoproj.io/workflow"] == "wf-1"
    assert "other" not in labels


def test_no_service_account_token_is_mounted_unless_the_job_asks_for_an_account() -> None:
    bare = made()["spec"]
    assert bare["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in bare
    asked = made(pod={"serviceAccountName": "s3-reader"})["spec"]
    assert (asked["serviceAccountName"], asked["automountServiceAccountToken"]) == ("s3-reader", True)


def test_a_pod_meets_the_restricted_pod_security_standard() -> None:
    manifest = made()
    context = manifest["spec"]["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] != 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    inner = container(manifest)["securityContext"]
    assert inner["allowPrivilegeEscalation"] is False
    assert inner["capabilities"] == {"drop": ["ALL"]}
    assert inner["readOnlyRootFilesystem"] is True
    assert not {"hostNetwork", "hostPID", "hostIPC"} & manifest["spec"].keys()
    assert all("hostPath" not in volume for volume in manifest["spec"]["volumes"])


def test_the_job_s_own_security_context_outranks_ours_field_by_field() -> None:
    context = made(pod={"securityContext": {"runAsUser": 4242}})["spec"]["securityContext"]
    assert (context["runAsUser"], context["runAsNonRoot"]) == (4242, True)


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_reserved_variable_cannot_be_set_by_a_job(name: str) -> None:
    with pytest.raises(ValidationError, match="this variable is set by Oarlock"):
        spec(pod={"env": [{"name": name, "value": "x"}]})
    of_agent = gang_environment(nodes=2, gpus_per_node=1, address="a", port=1)
    of_pods = {*environment(made()), *environment(made(incarnation=2, surge=True))}
    assert name in {*of_pods, *of_agent, Variable.CONFIG}, "what is reserved is set, or has its place"


def test_a_pod_that_is_made_anew_says_so_and_keeps_its_hostname() -> None:
    first, second = made(rank=3), made(rank=3, incarnation=2)
    assert (first["metadata"]["name"], second["metadata"]["name"]) == ("flux-1-3", "flux-1-3-i2")
    assert first["spec"]["hostname"] == second["spec"]["hostname"] == "flux-3"
    assert second["metadata"]["labels"] == {**first["metadata"]["labels"], "oarlock.dev/incarnation": "2"}
    new = {"OARLOCK_INCARNATION": "2", "OARLOCK_FOLLOWS_THE_DEAD": "1", "OARLOCK_REPLACES_PODS": "1"}
    assert environment(second) == {**environment(first), **new}
    assert second["metadata"]["annotations"]["oarlock.dev/made-from"] == "hash"


def test_a_job_s_own_variables_come_after_the_contract_s_and_envfrom_cannot_outrank_them() -> None:
    manifest = made(**FULL)
    assert environment(manifest)["NCCL_DEBUG"] == "INFO"
    assert container(manifest)["env"][-1]["name"] == "NCCL_DEBUG"
    assert container(manifest)["envFrom"] == [{"secretRef": {"name": "mine"}}]


def test_who_and_where_comes_from_the_downward_api() -> None:
    env = environment(made())
    assert env["OARLOCK_POD_UID"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert env["OARLOCK_NODE"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_a_pod_knows_its_cluster_where_the_operator_does() -> None:
    assert environment(made())["OARLOCK_CLUSTER"] == "lab"
    assert "OARLOCK_CLUSTER" not in environment(pod(job(), spec(), attempt=1, rank=0, image="i"))


@pytest.mark.parametrize(
    ("output", "source"),
    [
        ({"persistentVolumeClaim": {"claimName": "out"}}, {"persistentVolumeClaim": {"claimName": "out"}}),
        ({"nfs": {"server": "10.0.0.100", "path": "/exports"}}, {"nfs": {"server": "10.0.0.100", "path": "/exports"}}),
    ],
    ids=["claim", "NFS"],
)
def test_the_output_is_mounted_from_a_claim_or_an_export(output: dict[str, Any], source: dict[str, Any]) -> None:
    manifest = made(output={**output, "mountPath": "/out/"})
    assert manifest["spec"]["volumes"][0] == {"name": "output", **source}
    assert container(manifest)["volumeMounts"][0] == {"name": "output", "mountPath": "/out/"}
    assert environment(manifest)["OARLOCK_OUTPUT_DIR"] == "/out/flux"
    assert output_directory(job(), spec(output={**output, "directory": "run-7"})) == "/output/run-7"


@given(st.sampled_from([{}, FULL]), st.integers(0, 4095), st.integers(1, 10**7 - 1))
def test_every_mount_has_its_volume_and_no_two_volumes_share_a_name(
    changes: dict[str, Any], rank: int, attempt: int
) -> None:
    manifest = made(rank, attempt, **changes)
    names = [volume["name"] for volume in manifest["spec"]["volumes"]]
    assert len(names) == len(set(names))
    paths = [mount["mountPath"] for mount in container(manifest)["volumeMounts"]]
    assert len(paths) == len(set(paths))
    assert {mount["name"] for mount in container(manifest)["volumeMounts"]} == set(names)


@pytest.mark.parametrize(
    ("nodes", "gpus", "apart"), [(2, 7, True), (2, 1, True), (2, 0, True), (2, 8, False), (1, 1, False), (4, 16, False)]
)
def test_pods_keep_apart_where_gpus_alone_would_not_put_one_on_each_node(nodes: int, gpus: int, apart: bool) -> None:  # noqa: FBT001
    affinity = made(nodes=nodes, gpusPerNode=gpus)["spec"].get("affinity", {})
    terms = affinity.get("podAntiAffinity", {}).get(REQUIRED, [])
    assert [term["topologyKey"] for term in terms] == ([HOSTNAME] if apart else [])


def test_only_pods_of_the_same_attempt_keep_apart_so_that_a_dying_gang_does_not_block_its_successor() -> None:
    term = made(attempt=3)["spec"]["affinity"]["podAntiAffinity"][REQUIRED][0]
    assert term["labelSelector"] == {"matchLabels": {"oarlock.dev/job-uid": "uid-1", "oarlock.dev/attempt": "3"}}


def test_the_job_s_own_affinity_and_tolerations_are_kept_beside_ours() -> None:
    theirs = {"topologyKey": "rack", "labelSelector": {}}
    affinity = {"nodeAffinity": {"a": 1}, "podAntiAffinity": {REQUIRED: [theirs], "preferred": [2]}}
    toleration = {"key": "gpu", "operator": "Exists"}
    job_spec = spec(scheduling={"affinity": affinity, "tolerations": [toleration]})
    before = job_spec.model_dump()
    built = pod(job(), job_spec, attempt=1, rank=0, image="i")["spec"]
    assert built["affinity"]["nodeAffinity"] == {"a": 1}
    assert built["affinity"]["podAntiAffinity"]["preferred"] == [2]
    assert built["affinity"]["podAntiAffinity"][REQUIRED][0] == theirs
    assert len(built["affinity"]["podAntiAffinity"][REQUIRED]) == 2
    assert built["tolerations"][-1] == toleration
    assert {t["tolerationSeconds"] for t in built["tolerations"][:-1]} == {30}
    assert job_spec.model_dump() == before, "the job itself is not changed"


def test_gpus_are_asked_as_requests_and_limits_beside_the_job_s_own() -> None:
    resources = container(made(**FULL))["resources"]
    assert resources == {"requests": {"cpu": "4", "nvidia.com/gpu": "2"}, "limits": {"nvidia.com/gpu": "2"}}
    assert "resources" not in container(made(gpusPerNode=0))
    assert "amd.com/gpu" in container(made(pod={"gpuResource": "amd.com/gpu"}))["resources"]["limits"]


def test_a_grace_period_of_zero_is_a_second_and_not_the_default() -> None:
    assert made(pod={"terminationGracePeriodSeconds": 0})["spec"]["terminationGracePeriodSeconds"] == 1


def test_a_pod_carries_its_attempt_s_job_json_and_has_it_as_a_read_only_file() -> None:
    pod = made(attempt=4, output={"nfs": {"server": "s", "path": "/e"}, "minFree": "2Gi"})
    facts = told(pod)
    assert (facts.attempt, facts.nodes, facts.gpus_per_node, facts.min_free_bytes) == (4, 2, 2, 2 * 1024**3)
    assert facts.output_directory == "/output/flux"
    assert facts.training["steps"] == 100
    mount = next(one for one in container(pod)["volumeMounts"] if one["name"] == "oarlock-config")
    assert (mount["mountPath"], mount["readOnly"]) == ("/etc/oarlock", True)


def test_job_json_has_what_training_sets_apart_from_the_defaults_of_what_it_leaves_open() -> None:
    facts = told(made())
    assert facts.training.keys() == {"model", "steps", "data"}
    assert facts.training_defaults["checkpoint"] == {"keep": 5, "resume": "Auto"}
    training = spec().training
    assert training
    assert facts.whole_training == training.to_manifest()


def test_job_json_has_the_sections_of_the_spec_as_they_were_written_and_of_recovery_what_pods_act_on() -> None:
    written = {
        "preflight": {"gpus": False, "minBusBandwidth": 40, "timeoutSeconds": 60},
        "recovery": {"inPlace": "Auto", "hangSeconds": 90, "cordon": "Never"},
        "webhooks": [{"name": "chat", "url": "https://chat.example.com", "minLevel": "Error"}],
    }
    body = json.loads(job_file(job(), spec(**written), 1).to_json())
    assert {name: body[name] for name in written} == written | {"recovery": {"inPlace": "Auto", "hangSeconds": 90}}


def test_sections_that_nobody_wrote_take_no_room_in_the_pods() -> None:
    body = json.loads(job_file(job(), spec(), 1).to_json())
    assert body.keys().isdisjoint({"ports", "preflight", "recovery", "webhooks", "custom"})


@pytest.mark.parametrize(("said", "read"), [("1000", 1000), ("1.5Gi", 1610612736), ("1500m", 2), ("1e3", 1000)])
def test_min_free_is_told_in_bytes(said: str, read: int) -> None:
    assert told(made(output={"nfs": {"server": "s", "path": "/e"}, "minFree": said})).min_free_bytes == read


def test_a_job_of_one_node_needs_no_name_and_rank_0_of_a_gang_has_the_one_that_its_ranks_meet_at() -> None:
    assert not {"hostname", "subdomain"} & made(nodes=1)["spec"].keys()
    named = made(nodes=2)["spec"]
    address = rendezvous_address(job="flux", namespace="default", nodes=2)
    assert address == f"{named['hostname']}.{named['subdomain']}.default.svc"


def test_a_pod_names_no_port_that_nobody_asks_for_by_its_name_but_holds_the_node_s_where_it_is_in_its_network() -> None:
    assert [port["name"] for port in container(made())["ports"]] == ["status"]
    held = container(made(pod={"hostNetwork": True}))["ports"]
    assert {port["name"]: port["hostPort"] for port in held} == {"rendezvous": 29500, "status": 9400, "link": 9401}


def test_a_pod_says_who_it_is_and_where_its_output_lies_and_leaves_the_rest_to_job_json() -> None:
    asked = {"JOB", "ATTEMPT", "NODE", "POD_UID", "OUTPUT_DIR", "CLUSTER", "HISTORY", "SPEC", "BACKOFF"}
    assert environment(made()).keys() == {"MACHINE_RANK", *(f"OARLOCK_{name}" for name in asked)}


@pytest.mark.parametrize(("recovery", "all_of_them"), [({}, False), ({"memory": {"everySteps": "Auto"}}, True)])
def test_the_service_names_all_pods_only_where_they_ask_each_other_for_state(
    recovery: dict[str, Any],
    all_of_them: bool,  # noqa: FBT001
) -> None:
    built = service(job(spec=spec(nodes=2, recovery={"inPlace": "Auto", **recovery})), 5)
    assert ("oarlock.dev/rank" not in built["spec"]["selector"]) is all_of_them
    assert built["spec"]["selector"]["oarlock.dev/attempt"] == "5"


def test_the_service_names_rank_0_alone_before_it_is_ready_and_of_one_attempt_only() -> None:
    built = service(job(), 5)
    assert built["spec"]["clusterIP"] == "None"
    assert built["spec"]["publishNotReadyAddresses"] is True
    labels = made(attempt=5)["metadata"]["labels"]
    assert built["spec"]["selector"].items() <= labels.items()
    others = (made(attempt=6), made(rank=1, attempt=5))
    assert not any(built["spec"]["selector"].items() <= other["metadata"]["labels"].items() for other in others)
    assert made(3)["spec"]["subdomain"] == built["metadata"]["name"]
