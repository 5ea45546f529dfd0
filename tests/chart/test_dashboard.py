"""The page that the chart brings where it is asked for: a pod without any right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oarlock_local.rights import granted
from tests.chart.rendering import EVERYTHING, one, render

ON = {"dashboard": {"enabled": True}}
HOSTS = ["page.example.com", "page.internal"]


def pod(objects: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = one(objects, "Deployment", "oarlock-web")["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("values", [ON, EVERYTHING], ids=["alone", "with everything"])
def test_the_page_has_an_account_of_its_own_without_a_token_and_without_a_role(
    values: dict[str, Any], helm_program: Path
) -> None:
    objects = render(helm_program, values)
    account = one(objects, "ServiceAccount", "oarlock-web")
    assert account["automountServiceAccountToken"] is False
    assert pod(objects)["automountServiceAccountToken"] is False
    assert pod(objects)["serviceAccountName"] == "oarlock-web"
    volumes = [source for volume in pod(objects)["volumes"] for source in volume.keys() - {"name"}]
    assert not {"projected", "secret", "hostPath"} & set(volumes)
    assert granted(objects, "oarlock-web") == set()
    assert granted(objects, "oarlock-operator") == granted(
        render(helm_program, {**values, "dashboard": {}}), "oarlock-operator"
    )


def test_the_pages_pod_is_restricted(helm_program: Path) -> None:
    found = pod(render(helm_program, ON))
    assert found["securityContext"]["runAsNonRoot"] is True
    assert found["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert found["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_page_answers_to_the_names_by_which_it_is_reached(helm_program: Path) -> None:
    dashboard = {
        "enabled": True,
        "hosts": HOSTS,
        "ingress": {"enabled": True},
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "outer"}]},
    }
    objects = render(helm_program, {"dashboard": dashboard})
    ingress, route = one(objects, "Ingress")["spec"], one(objects, "HTTPRoute")["spec"]
    assert [rule["host"] for rule in ingress["rules"]] == HOSTS
    assert [name for each in ingress["tls"] for name in each["hosts"]] == HOSTS
    assert route["hostnames"] == HOSTS
    command = pod(objects)["containers"][0]["command"]
    assert [word.partition("=")[2] for word in command if word.startswith("--host=")] == HOSTS


def test_nothing_but_a_switch_lets_the_page_change_anything(helm_program: Path) -> None:
    assert "--actions" not in pod(render(helm_program, ON))["containers"][0]["command"]
    assert "--actions" in pod(render(helm_program, EVERYTHING))["containers"][0]["command"]


def test_outputs_are_mounted_read_only_where_the_page_is_told_whose_they_are(helm_program: Path) -> None:
    own = {"namespace": "oarlock", "claimName": "here"}
    entries = [*EVERYTHING["dashboard"]["outputs"], own]
    found = pod(render(helm_program, {"dashboard": {"enabled": True, "outputs": entries}}))
    (container,) = found["containers"]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    volumes = {volume.pop("name"): volume for volume in found["volumes"]}
    told = [json.loads(word.partition("=")[2]) for word in container["command"] if word.startswith("--output=")]
    assert told == [{**entry, "folder": f"/outputs/{number}"} for number, entry in enumerate(entries)]
    assert [volumes[mounts[entry["folder"]]["name"]] for entry in told] == [
        {"nfs": {"server": "nfs.example.com", "path": "/exports/team-a", "readOnly": True}},
        {"persistentVolumeClaim": {"claimName": "output-of-team-b", "readOnly": True}},
        {"persistentVolumeClaim": {"claimName": "here", "readOnly": True}},
    ]
    assert all(mount["readOnly"] is True and "mountPropagation" not in mount for mount in mounts.values())


def test_with_policies_the_page_asks_the_api_server_alone(helm_program: Path) -> None:
    objects = render(helm_program, {**EVERYTHING})
    policy = one(objects, "NetworkPolicy", "oarlock-web")["spec"]
    assert policy["podSelector"]["matchLabels"] == one(objects, "Service", "oarlock-web")["spec"]["selector"]
    assert policy["egress"] == one(objects, "NetworkPolicy", "oarlock-operator")["spec"]["egress"][:2]
    assert policy["ingress"] == [{"ports": [{"port": "http"}], "from": EVERYTHING["networkPolicy"]["dashboardFrom"]}]
