"""In the node's network NCCL and gloo get the interface that has the pod's address, by its exact name."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from oarlock_api.contract.job_file import JobFile
from oarlock_trainer.agent.ranks import accelerate_config, rank_environment
from oarlock_trainer.agent.ranks.network_interface import interface_with
from oarlock_trainer.runtime.assignment import Assignment, Pod


def environment(*, nodes: int = 2, **inherited: str) -> dict[str, str]:
    job = JobFile(
        job="flux",
        namespace="default",
        job_uid="u",
        attempt=1,
        nodes=nodes,
        gpus_per_node=0,
        output_directory="/output/flux",
        training={},
    )
    pod = Pod(rank=0, job="flux", attempt=1, pod_uid="p", node="n")
    assignment = Assignment(pod=pod, job=job, master_address="flux-0.flux", master_port=29501, simulate_gpus=False)
    return rank_environment.shared(accelerate_config.plan_launch(assignment), inherited)


@pytest.mark.parametrize(
    ("address", "name"),
    [("127.0.0.1", "lo"), ("192.0.2.254", None), ("", None), ("flux-0.flux", None), ("127.0.0.999", None)],
)
def test_an_interface_is_found_by_its_address(address: str, name: str | None) -> None:
    assert interface_with(address) == name


def test_further_addresses_and_ipv6_are_found_under_the_interfaces_own_name() -> None:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("makes interfaces in a network namespace of its own, with unshare and ip")
    module = "oarlock_trainer.agent.ranks.network_interface"
    look = f"import sys; from {module} import interface_with; print(*map(interface_with, sys.argv[1:]))"
    script = (
        "ip link add one type bridge && ip link add onetwo type bridge && ip addr add 10.9.0.1/24 dev one && "
        "ip addr add 10.9.0.2/24 dev one label one:1 && ip addr add 10.9.0.3/24 dev onetwo && "
        "ip addr add fd09::1/64 dev onetwo && ip link set one up && ip link set onetwo up && "
        'exec "$0" -c "$1" 10.9.0.1 10.9.0.2 10.9.0.3 fd09::1 10.9.0.4'
    )
    command = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", script, sys.executable, look]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Operation not permitted" in found.stderr or "Unknown device" in found.stderr:
        pytest.skip(f"this machine makes no such interfaces: {found.stderr.strip()}")
    assert found.stdout.split() == ["one", "one", "onetwo", "onetwo", "None"], found.stderr


def test_ranks_in_the_nodes_network_are_given_the_pods_interface_exactly() -> None:
    variables = environment(OARLOCK_POD_IP="127.0.0.1")
    assert (variables["GLOO_SOCKET_IFNAME"], variables["NCCL_SOCKET_IFNAME"]) == ("lo", "=lo")


def test_the_jobs_own_choice_of_interfaces_stays() -> None:
    variables = environment(OARLOCK_POD_IP="127.0.0.1", NCCL_SOCKET_IFNAME="eth0,eth1", GLOO_SOCKET_IFNAME="eth0")
    assert (variables["GLOO_SOCKET_IFNAME"], variables["NCCL_SOCKET_IFNAME"]) == ("eth0", "eth0,eth1")


def test_in_a_pods_own_network_nothing_is_chosen() -> None:
    assert not {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"} & environment().keys()


def test_gloo_of_ranks_that_are_all_in_one_pod_is_reached_by_nobody_else() -> None:
    assert environment(nodes=1, OARLOCK_POD_IP="192.0.2.1")["GLOO_SOCKET_IFNAME"] == "lo"
    assert environment(nodes=1, GLOO_SOCKET_IFNAME="eth0")["GLOO_SOCKET_IFNAME"] == "eth0", "the job's own choice"
