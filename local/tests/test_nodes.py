"""Real nodes run this machine's Python in real pods."""

import json
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock_local import patience
from oarlock_local.cluster import Cluster, running
from oarlock_local.errors import ClusterError
from oarlock_local.machine import why_no_nodes

from .pods import apply, output, python_pod, wait_for_phase

pytestmark = pytest.mark.nodes

SERVER = """
    import http.server
    http.server.test(http.server.SimpleHTTPRequestHandler, port=8000)
"""
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "labels": {"gang": "g"}},
    "spec": {
        "storageClassName": "shared",
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
    },
}
GANG = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "gang", "labels": {"gang": "g"}},
    "spec": {"clusterIP": "None", "selector": {"gang": "g"}, "publishNotReadyAddresses": True},
}


@pytest.fixture(autouse=True)
def no_pods_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "local_cluster" not in request.fixturenames:
        return
    local_cluster: Cluster = request.getfixturevalue("local_cluster")
    local_cluster.kubectl("delete", "pods,services,persistentvolumeclaims", "--selector=gang=g")


def test_a_hardened_pod_runs_this_python_and_this_code_without_an_image_build(local_cluster: Cluster) -> None:
    program = """
        import json, os, sys
        import oarlock_local
        print(json.dumps([sys.prefix, oarlock_local.__file__, os.getuid(), os.environ["HOME"]]))
    """
    apply(local_cluster, python_pod("a", program))
    prefix, code, uid, home = json.loads(output(local_cluster, "a"))
    assert Path(prefix).samefile(sys.prefix)
    assert Path(code).samefile(sys.modules["oarlock_local"].__file__ or "")
    assert (uid, home) == (1000, "/tmp")


def test_shared_folders_cannot_be_written(local_cluster: Cluster) -> None:
    program = f"""
        import errno
        try:
            open({str(Path(sys.prefix) / "intruder")!r}, "w")
        except OSError as error:
            print(errno.errorcode[error.errno])
    """
    apply(local_cluster, python_pod("a", program))
    assert output(local_cluster, "a").strip() in {"EROFS", "EACCES"}
    assert not (Path(sys.prefix) / "intruder").exists()


def test_pods_find_each_other_and_the_api_by_name_across_nodes(local_cluster: Cluster) -> None:
    apply(local_cluster, GANG, python_pod("server", SERVER, node="node-1"))
    wait_for_phase(local_cluster, "server", "Running")
    client = """
        import pathlib, ssl, time, urllib.error, urllib.request
        folder = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
        trust = ssl.create_default_context(cafile=folder / "ca.crt")
        headers = {"Authorization": "Bearer " + (folder / "token").read_text()}
        for url in ("http://server.gang:8000/", "https://kubernetes.default.svc/api"):
            deadline = time.monotonic() + 60
            while True:
                try:
                    answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), context=trust)
                    print(answer.status)
                    break
                except urllib.error.URLError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)
    """
    apply(local_cluster, python_pod("client", client, node="node-2"))
    assert output(local_cluster, "client").split() == ["200", "200"]


def test_this_machine_reaches_pods_and_pods_reach_this_machine(local_cluster: Cluster) -> None:
    apply(local_cluster, python_pod("server", SERVER, node="node-3"))
    local_cluster.kubectl("wait", "--for=condition=Ready", "pod/server", patience.KUBECTL)
    client = f"""
        import socket
        with socket.create_server(("", 0)) as here:
            print(socket.getaddrinfo({local_cluster.host_address!r}, 1)[0][4][0])
        probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        probe.connect(({local_cluster.host_address!r}, 9))
    """
    apply(local_cluster, python_pod("client", client))
    assert output(local_cluster, "client").strip() == local_cluster.host_address
    address = local_cluster.kubectl("get", "pod", "server", "-o", "jsonpath={.status.podIP}")
    local_cluster.kubectl("exec", "server", "--", "python", "-c", _until_port_answers())
    with urllib.request.urlopen(f"http://{address}:8000/", timeout=patience.SECONDS) as answer:
        assert answer.status == 200


def test_a_claim_is_one_folder_on_all_nodes_and_on_this_machine(local_cluster: Cluster) -> None:
    apply(local_cluster, CLAIM)
    write = "import os, pathlib; pathlib.Path('/data', os.uname().nodename).write_text('was here')"
    pods = {f"writer-{n}": f"node-{n}" for n in (1, 2, 3)}
    apply(local_cluster, *(python_pod(pod, write, node=node, claim="data") for pod, node in pods.items()))
    for pod in pods:
        output(local_cluster, pod)
    folder = local_cluster.volume("data")
    assert sorted(path.name for path in folder.iterdir()) == sorted(pods)


def test_gpus_are_scheduled_by_number(local_cluster: Cluster) -> None:
    apply(local_cluster, *(python_pod(f"full-{n}", SERVER, gpus=2) for n in range(3)))
    for n in range(3):
        wait_for_phase(local_cluster, f"full-{n}", "Running")
    names = local_cluster.kubectl("get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}").split()
    assert sorted(names) == ["node-1", "node-2", "node-3"]
    apply(local_cluster, python_pod("one-too-many", SERVER, gpus=1))
    unscheduled = "--for=jsonpath={.status.conditions[?(@.type=='PodScheduled')].reason}=Unschedulable"
    local_cluster.kubectl("wait", unscheduled, "pod/one-too-many", patience.KUBECTL)


def test_further_names_lead_to_the_same_image(local_cluster: Cluster) -> None:
    local_cluster.tag("example.test/trainer:9")
    pod = python_pod("a", "print('ran')")
    pod["spec"]["containers"][0]["image"] = "example.test/trainer:9"
    apply(local_cluster, pod)
    assert output(local_cluster, "a") == "ran\n"


def test_a_killed_container_ends_by_sigkill(local_cluster: Cluster) -> None:
    apply(local_cluster, python_pod("a", SERVER))
    wait_for_phase(local_cluster, "a", "Running")
    local_cluster.fault("kill-container", "default/a/main")
    wait_for_phase(local_cluster, "a", "Failed")
    code = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}"
    assert local_cluster.kubectl("get", "pod", "a", "-o", code) == "137"


def test_a_container_that_does_not_run_cannot_be_killed(local_cluster: Cluster) -> None:
    apply(local_cluster, python_pod("a", "print('done')"))
    output(local_cluster, "a")
    with pytest.raises(ClusterError, match="no container 'main' is running"):
        local_cluster.fault("kill-container", "default/a")


def test_a_program_that_takes_too_much_memory_is_killed_alone(local_cluster: Cluster) -> None:
    pod = python_pod("a", "held = bytearray(512 << 20)\nprint(len(held))")
    pod["spec"]["containers"][0]["resources"] = {"limits": {"memory": "64Mi"}}
    apply(local_cluster, pod)
    wait_for_phase(local_cluster, "a", "Failed")
    reason = "jsonpath={.status.containerStatuses[0].state.terminated.reason}"
    assert local_cluster.kubectl("get", "pod", "a", "-o", reason) == "OOMKilled"


def _until_port_answers() -> str:
    return """if True:
        import socket, time
        while True:
            try:
                socket.create_connection(("127.0.0.1", 8000), 1)
                break
            except OSError:
                time.sleep(0.05)
    """


def test_a_state_folder_may_lie_where_nodes_hide_the_machines_own_folders() -> None:
    if reason := why_no_nodes():
        pytest.skip(reason)
    # Nodes cover /var/lib; a cluster whose folder went under that cover would write its claims into the void.
    with tempfile.TemporaryDirectory(dir="/var/lib") as state, running("deep", nodes=1, state=Path(state)) as cluster:
        apply(cluster, CLAIM, python_pod("a", "open('/data/written', 'w').close()", claim="data"))
        output(cluster, "a")
        assert [path.name for path in cluster.volume("data").iterdir()] == ["written"]
