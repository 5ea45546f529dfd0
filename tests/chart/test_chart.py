"""What the chart renders, and which values it refuses. These are its unit tests: helm's own plugin for them is not needed."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from oarlock_local import chart
from oarlock_local.errors import ChartError
from tests.chart.rendering import CHART, EVERYTHING, NAMED, ROOT, VERSION, one, render

CRD = "trainingjobs.oarlock.dev"


def kinds(objects: list[dict[str, Any]]) -> Counter[str]:
    return Counter(item["kind"] for item in objects)


@pytest.mark.parametrize("values", [NAMED, EVERYTHING], ids=["by default", "everything"])
@pytest.mark.parametrize("version", ["helm 4", "helm 3"])
def test_helm_finds_nothing_to_complain_of(
    version: str, values: dict[str, Any], helm_programs: dict[str, Path]
) -> None:
    command = [str(helm_programs[version]), "lint", "--strict", str(CHART), "--values", "-"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, input=json.dumps(values))
    assert result.returncode == 0, result.stdout


def told(helm_program: Path, values: dict[str, Any]) -> str:
    """What helm says after an install."""
    command = [str(helm_program), "install", "told", str(CHART), "--dry-run=client", "--values", "-"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, input=json.dumps({**NAMED, **values}))
    return result.stdout.partition("\nNOTES:\n")[2]


@pytest.fixture(scope="module")
def told_by_default(helm_program: Path) -> str:
    return told(helm_program, {})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param({"namespaces": ["a", "b"]}, "works in a, b.", id="in namespaces"),
        pytest.param({"trainerImage": "registry.example.com/t:1"}, "registry.example.com/t:1", id="an image"),
        pytest.param({"crds": {"enabled": False}}, "the operator waits for it", id="without the API"),
        pytest.param({"crds": {"keep": False}}, "deletes the TrainingJob API, and with it", id="an API that goes"),
        pytest.param({"rbac": {"create": False}}, "bind roles to the ServiceAccount told-operator", id="no rights"),
        pytest.param({"monitoring": {"rules": {"enabled": True}}}, "OarlockOperatorDown fires", id="alerts alone"),
        pytest.param({"dashboard": {"enabled": True}}, "port-forward -n default service/told-web 8080", id="a page"),
        pytest.param(
            {"dashboard": {"enabled": True, "hosts": ["a.example.com"], "ingress": {"enabled": True}}},
            "https://a.example.com",
            id="a page with a name",
        ),
    ],
)
def test_helm_tells_what_follows_from_the_values(
    values: dict[str, Any], words: str, told_by_default: str, helm_program: Path
) -> None:
    assert words in told(helm_program, values)
    assert words not in told_by_default


def test_helm_tells_how_nodes_are_treated(told_by_default: str, helm_program: Path) -> None:
    assert "works in all namespaces" in told_by_default
    assert "Nodes whose GPUs break are cordoned" in told_by_default
    assert "Nodes are not cordoned: a job" in told(helm_program, {"cordon": False})
    assert "Nodes are not cordoned: a job" in told(helm_program, {"namespaces": ["a"]})
    assert "Events tell which would be" in told(helm_program, {"cordon": "DryRun"})


@pytest.mark.parametrize("version", ["helm 4", "helm 3"])
def test_a_package_of_the_chart_is_whole(version: str, helm_programs: dict[str, Path], tmp_path: Path) -> None:
    """The API in it is a link in the repository."""
    command = [str(helm_programs[version]), "package", str(CHART), "--destination", str(tmp_path)]
    subprocess.run(command, capture_output=True, check=True)
    (package,) = tmp_path.glob("oarlock-*.tgz")
    packed = chart.render(package, helm_programs[version], release="oarlock", namespace="oarlock", values=EVERYTHING)
    assert packed == render(helm_programs[version], EVERYTHING)


def test_by_default_the_operator_works_in_all_namespaces_and_nothing_else_is_installed(helm_program: Path) -> None:
    assert kinds(render(helm_program)) == {
        "CustomResourceDefinition": 1,
        "ClusterRole": 3,
        "ClusterRoleBinding": 1,
        "Deployment": 1,
        "Lease": 1,
        "Role": 1,
        "RoleBinding": 1,
        "ServiceAccount": 1,
        "ValidatingAdmissionPolicy": 2,
        "ValidatingAdmissionPolicyBinding": 2,
    }


def test_with_namespaces_named_it_gets_roles_there_and_nothing_cluster_wide(helm_program: Path) -> None:
    objects = render(helm_program, {"namespaces": ["a", "b"], "crds": {"enabled": False}})
    assert not [item for item in objects if "namespace" not in item["metadata"]]
    assert {item["metadata"]["namespace"] for item in objects if item["kind"] == "Role"} == {"oarlock", "a", "b"}
    container = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "OARLOCK_OPERATOR_NAMESPACES", "value": '["a","b"]'} in container["env"]


def test_the_operators_pod_is_restricted(helm_program: Path) -> None:
    pod = one(render(helm_program), "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize(
    ("values", "anew"),
    [
        pytest.param({"gangKeys": {"enabled": False}}, True, id="keys of gangs"),
        pytest.param({"cordon": False}, True, id="cordons"),
        pytest.param({"namespaces": ["a"]}, True, id="namespaces"),
        pytest.param({"jobNetworkPolicies": {"enabled": True}}, True, id="policies"),
        pytest.param({"monitoring": {"rules": {"enabled": True}}}, False, id="alerts"),
        pytest.param({"replicas": 2}, False, id="another operator"),
    ],
)
def test_operators_start_anew_where_their_rights_change_and_only_there(
    values: dict[str, Any],
    anew: bool,  # noqa: FBT001
    helm_program: Path,
) -> None:
    def rights(**given: Any) -> str:
        pod = one(render(helm_program, {"podAnnotations": {"example.com/a": "b"}, **given}), "Deployment")["spec"]
        told: dict[str, str] = pod["template"]["metadata"]["annotations"]
        assert told["example.com/a"] == "b"
        return told["checksum/rights"]

    assert (rights(**values) != rights()) is anew


def test_the_api_is_that_of_the_repository_and_stays_at_an_uninstall(helm_program: Path) -> None:
    crd = one(render(helm_program), "CustomResourceDefinition", CRD)
    metadata = crd.pop("metadata")
    assert metadata["annotations"] == {"helm.sh/resource-policy": "keep"}
    canonical = yaml.load((ROOT / "crds/trainingjobs.yaml").read_text(), yaml.CSafeLoader)
    del canonical["metadata"]
    assert crd == canonical
    kept_not = one(render(helm_program, {"crds": {"keep": False}}), "CustomResourceDefinition", CRD)
    assert "annotations" not in kept_not["metadata"]
    assert "CustomResourceDefinition" not in kinds(render(helm_program, {"crds": {"enabled": False}}))


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        pytest.param({"repository": "oarlock/operator"}, f"oarlock/operator:{VERSION}", id="by the chart's version"),
        pytest.param({"repository": "r.example.com:5000/o", "tag": "7"}, "r.example.com:5000/o:7", id="by tag"),
        pytest.param(
            {"repository": "r.example.com/o", "tag": "7", "digest": f"sha256:{'a' * 64}"},
            f"r.example.com/o@sha256:{'a' * 64}",
            id="by digest",
        ),
    ],
)
def test_the_image_is_named_by_tag_or_digest(image: dict[str, str], expected: str, helm_program: Path) -> None:
    pod = one(render(helm_program, {"image": image}), "Deployment")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == expected


def test_no_environment_variable_stands_twice(helm_program: Path) -> None:
    """Helm 4 applies on the server, where that is an error."""
    deployment = one(render(helm_program, EVERYTHING), "Deployment", "oarlock-operator")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    names = [item["name"] for item in container["env"]]
    assert len(names) == len(set(names))
    assert {"name": "OARLOCK_OPERATOR_CORDON_WINDOW_SECONDS", "value": "604800"} in container["env"]


def test_a_large_number_is_one_that_the_operator_reads(helm_program: Path) -> None:
    settings = {"CORDON_WINDOW_SECONDS": 2_000_000, "CORDON_ALLOW_BELOW_GANG": True, "LOG_LEVEL": "debug"}
    container = one(render(helm_program, {"settings": settings}), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ][0]
    told = {item["name"].removeprefix("OARLOCK_OPERATOR_"): item["value"] for item in container["env"]}
    assert (
        told.items()
        >= {
            "CORDON_WINDOW_SECONDS": "2000000",
            "CORDON_ALLOW_BELOW_GANG": "true",
            "LOG_LEVEL": "debug",
        }.items()
    )


def test_names_that_look_like_numbers_stay_names(helm_program: Path) -> None:
    accounts = [{"namespace": "2026", "name": "7"}]
    values = {
        **EVERYTHING,
        "cordon": False,
        "namespaces": ["2026", "on"],
        "argoWorkflows": {"serviceAccounts": accounts},
    }
    objects = render(helm_program, values, release="123")
    for item in objects:
        metadata = item["metadata"]
        words = [metadata["name"], metadata.get("namespace", ""), *metadata.get("labels", {}).values()]
        words += [word for subject in item.get("subjects", []) for word in subject.values()]
        assert {type(word) for word in words} == {str}, metadata


def test_several_operators_stand_on_different_nodes_as_far_as_can_be_unless_the_values_say_otherwise(
    helm_program: Path,
) -> None:
    def constraints(**values: Any) -> list[dict[str, Any]]:
        template = one(render(helm_program, {"replicas": 2, **values}), "Deployment")["spec"]["template"]
        found: list[dict[str, Any]] = template["spec"].get("topologySpreadConstraints", [])
        for each in found:
            assert each["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        return found

    spread = constraints()
    assert [(each["topologyKey"], each["whenUnsatisfiable"]) for each in spread] == [
        ("kubernetes.io/hostname", "ScheduleAnyway")
    ]
    assert spread[0]["matchLabelKeys"] == ["pod-template-hash"], "at an upgrade those that leave do not count"
    assert constraints(topologySpreadConstraints=[]) == []
    zones = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    own = {**zones, "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "oarlock"}}}
    assert [each["topologyKey"] for each in constraints(topologySpreadConstraints=[zones])] == [zones["topologyKey"]]
    assert constraints(topologySpreadConstraints=[own]) == [own]


def test_a_single_operator_never_holds_up_the_drain_of_its_node(helm_program: Path) -> None:
    assert "PodDisruptionBudget" not in kinds(render(helm_program))
    assert one(render(helm_program, {"replicas": 2}), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_people_get_jobs_with_the_clusters_own_roles_and_never_the_status(helm_program: Path) -> None:
    objects = render(helm_program)
    edit = one(objects, "ClusterRole", "oarlock-trainingjobs-edit")
    view = one(objects, "ClusterRole", "oarlock-trainingjobs-view")
    assert edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"
    assert view["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    assert edit["rules"][0]["resources"] == ["trainingjobs"]
    assert view["rules"][0]["verbs"] == ["get", "list", "watch"]


def test_a_workflow_gets_the_rights_of_the_example_in_its_namespace(helm_program: Path) -> None:
    accounts = [{"namespace": "team", "name": "workflow"}]
    role = one(
        render(helm_program, {"argoWorkflows": {"serviceAccounts": accounts}}), "Role", "oarlock-workflow-workflow"
    )
    example = yaml.safe_load_all((ROOT / "examples/argo-role.yaml").read_text())
    assert role["metadata"]["namespace"] == "team"
    assert role["rules"] == next(item["rules"] for item in example if item["kind"] == "Role")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param({"cordom": True}, "cordom", id="a misspelled value"),
        pytest.param({"cordon": "yes"}, "cordon", id="a word for a switch"),
        pytest.param({"settings": {"PROGRES_SECONDS": 5}}, "PROGRES_SECONDS", id="a setting that is none"),
        pytest.param({"settings": {"LEASE_NAME": "x"}}, "LEASE_NAME", id="a setting that the chart itself sets"),
        pytest.param({"settings": {"POD_ACCESS": "proxy"}}, "POD_ACCESS", id="a setting without its right"),
        pytest.param({"replicas": 0}, "replicas", id="no operator"),
        pytest.param({"namespaces": ["team.a"]}, "namespaces", id="a namespace that cannot be"),
        pytest.param({"image": {}}, "image.repository: name", id="an operator's image that nobody named"),
        pytest.param({"trainerImage": ""}, "trainerImage: name", id="a trainer's image that nobody named"),
        pytest.param({"image": {"digest": "sha256:abc"}}, "digest", id="a digest cut short"),
        pytest.param({"image": {"repository": "oarlock/operator:1"}}, "repository", id="a tag in the repository"),
        pytest.param({"monitoring": {"operator": "podMonitor"}}, "operator", id="a monitor that is none"),
        pytest.param({"admissionPolicy": {"enabled": True}}, "admissionPolicy", id="a policy without a rule"),
        pytest.param({"dashboard": {"ingress": {"enabled": True}}}, "dashboard/hosts", id="an Ingress without a name"),
        pytest.param(
            {"dashboard": {"hosts": ["a.example.com"], "httpRoute": {"enabled": True}}},
            "parentRefs",
            id="a route without a Gateway",
        ),
        *(
            pytest.param({"dashboard": {"enabled": True, "outputs": [entry]}}, words, id=what)
            for entry, words, what in (
                ({"namespace": "a"}, "outputs/0", "an output without storage"),
                ({"nfs": {"server": "s", "path": "/e"}}, "namespace", "an output of nobody's jobs"),
                (
                    {"namespace": "a", "nfs": {"server": "s", "path": "/e"}, "claimName": "c"},
                    "outputs/0",
                    "two storages",
                ),
                ({"namespace": "a", "nfs": {"server": "s", "path": "/e/../f"}}, "path", "an export that leads up"),
                ({"namespace": "a", "claimName": "c"}, "mountClaim", "a claim that the page's pod cannot mount"),
            )
        ),
        *(
            pytest.param(
                {"admissionPolicy": {"enabled": True, "imageRegistries": [prefix]}}, "imageRegistries", id=what
            )
            for prefix, what in (
                ("registry.example.com", "a registry that another's name may begin with"),
                ("registry.example.com/ml", "a folder that another's name may begin with"),
                ("ml/", "a folder of no registry, which is Docker Hub's"),
            )
        ),
    ],
)
def test_helm_refuses_values_that_are_wrong(values: dict[str, Any], words: str, helm_program: Path) -> None:
    with pytest.raises(ChartError, match=words):
        render(helm_program, values)
