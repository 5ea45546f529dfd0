"""A control plane without nodes is the real API."""

import json
from pathlib import Path

import pytest

from oarlock_local import patience
from oarlock_local.cluster import Cluster, running
from oarlock_local.errors import ClusterError, LocalError

pytestmark = pytest.mark.cluster

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "waiting"},
    "spec": {"containers": [{"name": "c", "image": "example.test/none"}]},
}


def test_the_first_pod_is_accepted_at_once(control_plane: Cluster) -> None:
    control_plane.kubectl("apply", "-f", "-", stdin=json.dumps(POD))
    assert control_plane.kubectl("get", "pod", "waiting", "-o", "jsonpath={.status.phase}") == "Pending"


def test_owned_objects_are_collected(control_plane: Cluster) -> None:
    control_plane.kubectl("create", "configmap", "owner")
    uid = control_plane.kubectl("get", "configmap", "owner", "-o", "jsonpath={.metadata.uid}")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    owned = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": [owner]}}
    control_plane.kubectl("apply", "-f", "-", stdin=json.dumps(owned))
    control_plane.kubectl("delete", "configmap", "owner")
    control_plane.kubectl("wait", "--for=delete", "configmap/owned", patience.KUBECTL)
    with pytest.raises(ClusterError, match="not found"):
        control_plane.kubectl("get", "configmap", "owned")


def test_namespaces_enforce_pod_security(control_plane: Cluster) -> None:
    control_plane.kubectl("create", "namespace", "strict")
    control_plane.kubectl("label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted")
    with pytest.raises(ClusterError, match="violates PodSecurity"):
        control_plane.kubectl("-n", "strict", "apply", "-f", "-", stdin=json.dumps(POD))


def test_who_has_no_rights_is_refused(control_plane: Cluster) -> None:
    with pytest.raises(ClusterError, match="forbidden"):
        control_plane.kubectl("--as", "system:serviceaccount:default:default", "get", "secrets")


def test_a_restarted_api_server_keeps_its_objects(control_plane: Cluster) -> None:
    control_plane.kubectl("create", "configmap", "kept")
    control_plane.fault("restart-apiserver")
    assert "kept" in control_plane.kubectl("get", "configmaps", "-o", "name")


def test_two_clusters_run_side_by_side(control_plane: Cluster, tmp_path: Path) -> None:
    # Far below the longest path that a unix socket may have, to be seen to work there too.
    deep = tmp_path.joinpath(*["a-long-folder-name"] * 6)
    with running("second", nodes=0, state=deep) as second:
        second.kubectl("create", "configmap", "here")
        with pytest.raises(ClusterError, match="not found"):
            control_plane.kubectl("get", "configmap", "here")


def test_an_unknown_node_is_named(control_plane: Cluster) -> None:
    with pytest.raises(ClusterError, match="no node 'node-9'"):
        control_plane.fault("cut", "node-9")


@pytest.mark.parametrize(("kind", "target"), [("cut", "NODE"), ("kill-container", "NAMESPACE/POD[/CONTAINER]")])
def test_a_fault_without_a_target_says_what_it_needs(kind: str, target: str, control_plane: Cluster) -> None:
    with pytest.raises(LocalError) as refused:
        control_plane.fault(kind)
    assert f"{kind} needs a target: oarlock-local fault control-plane {kind} {target}; the nodes are " in str(
        refused.value
    )


def test_a_claim_or_pod_that_is_not_there_is_named_without_the_servers_address(control_plane: Cluster) -> None:
    with pytest.raises(ClusterError) as refused:
        control_plane.volume("nope")
    said = (
        "there is no claim default/nope in cluster 'control-plane': `oarlock-local kubectl control-plane -- get pvc -A`"
    )
    assert str(refused.value).startswith(said)
    with pytest.raises(ClusterError, match=r"^there is no pod 'nope' in the namespace 'default'"):
        control_plane.fault("kill-container", "default/nope")
