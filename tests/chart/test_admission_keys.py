"""What the operator's right to make Secrets is good for, as the API server itself judges by the release's policy."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oarlock_local.cluster import Cluster
from oarlock_local.patience import eventually
from tests.chart.demands import refusal
from tests.chart.rendering import render

pytestmark = pytest.mark.cluster
RELEASE = "keyed"
ACCOUNT = f"--as=system:serviceaccount:oarlock:{RELEASE}-operator"
OWNER = {"apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob", "name": "flux", "uid": "u"}
SECRET: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "flux-key-01234567", "namespace": "default", "ownerReferences": [OWNER]},
    "type": "oarlock.dev/gang-key",
    "immutable": True,
    "data": {"key": "a2V5"},
}
OWN = {
    **SECRET,
    "metadata": {"name": f"{RELEASE}-operator-key", "namespace": "oarlock"},
    "type": "oarlock.dev/operator-key",
    "immutable": False,
}


def changed(secret: dict[str, Any], **changes: Any) -> str:
    made = copy.deepcopy(secret)
    made["metadata"] |= changes.pop("metadata", {})
    return json.dumps(made | changes)


@pytest.fixture(scope="module")
def judged(helm_program: Path, serving: Cluster) -> Callable[[str], str]:
    """What the API server has against a Secret that the operator makes, once the policy is in force."""
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ClusterRole", "ClusterRoleBinding")
    rendered = [item for item in render(helm_program, release=RELEASE) if item["kind"] in kinds]
    rendered.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "oarlock"}})
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": rendered})
    serving.kubectl("apply", "--server-side", "-f", "-", stdin=listed)

    def judge(body: str) -> str:
        return refusal(serving, body, ACCOUNT)

    eventually(lambda: "and no others" in judge(changed(SECRET, type="Opaque")), "the right and the policy")
    return judge


def test_the_policy_lets_the_keys_of_gangs_and_the_operators_own_pass(judged: Callable[[str], str]) -> None:
    assert judged(json.dumps(SECRET)) == ""
    assert judged(json.dumps(OWN)) == ""


@pytest.mark.parametrize(
    "secret",
    [
        pytest.param(changed(SECRET, type="Opaque"), id="of another type"),
        pytest.param(changed(SECRET, immutable=False), id="one that can be changed"),
        pytest.param(changed(SECRET, metadata={"ownerReferences": []}), id="nobody's"),
        pytest.param(changed(SECRET, metadata={"name": "flux"}), id="another name"),
        pytest.param(changed(SECRET, metadata={"name": "other-key-01234567"}), id="another job's name"),
        pytest.param(
            changed(SECRET, metadata={"ownerReferences": [{**OWNER, "kind": "Pod", "apiVersion": "v1"}]}), id="a pod's"
        ),
        pytest.param(changed(OWN, metadata={"namespace": "default"}), id="its own elsewhere"),
        pytest.param(changed(OWN, metadata={"name": "token"}), id="a further one of its own"),
        pytest.param(
            changed(
                OWN,
                type="kubernetes.io/service-account-token",
                metadata={"annotations": {"kubernetes.io/service-account.name": "default"}},
            ),
            id="a token",
        ),
    ],
)
def test_no_other_secret_can_be_made_with_the_operators_right(judged: Callable[[str], str], secret: str) -> None:
    assert "and no others" in judged(secret)
