"""Names of a job's objects: valid for the longest job and the biggest gang, and never two meanings for one name."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.contract.environment import (
    RESERVED,
    SIMULATE_GPUS,
    Variable,
    gang_environment,
    is_reserved,
    pod_environment,
    rendezvous_address,
)
from oarlock_api.contract.layout import Owner, checkpoint_name, parse_checkpoint_name, parse_owner
from oarlock_api.contract.names import MAX_NAME_LENGTH, Label, host_name, pod_name, service_name
from oarlock_api.contract.wire import WireError
from oarlock_api.spec import TrainingJobSpec

DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LONGEST = "j" * MAX_NAME_LENGTH
MAX_NODES = next(m.le for m in TrainingJobSpec.model_fields["nodes"].metadata if hasattr(m, "le"))
MANY_ATTEMPTS = 9_999_999
"""A gang that fails once a minute needs nineteen years for so many."""

JOBS = st.from_regex(r"[a-z]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
NUMBERS = st.integers(0, 99)


@pytest.mark.parametrize(
    "name",
    [
        pod_name(LONGEST, MANY_ATTEMPTS, MAX_NODES - 1),
        host_name(LONGEST, MAX_NODES - 1),
        service_name(LONGEST),
    ],
    ids=["pod", "hostname", "Service"],
)
def test_names_of_the_longest_job_with_the_biggest_numbers_are_dns_labels(name: str) -> None:
    assert DNS_LABEL.fullmatch(name), f"{len(name)} characters"


def test_no_name_longer_than_the_limit_leaves_room_for_the_numbers() -> None:
    longer = LONGEST + "j"
    assert len(pod_name(longer, MANY_ATTEMPTS, MAX_NODES - 1)) > 63


def test_the_address_of_rank_0_is_a_dns_name_in_the_longest_namespace() -> None:
    address = rendezvous_address(job=LONGEST, namespace="n" * 63, nodes=4)
    assert len(address) <= 253
    assert all(len(part) <= 63 for part in address.split("."))
    assert address.split(".")[0] == host_name(LONGEST, 0)
    assert address.split(".")[1] == service_name(LONGEST)


PODS = st.tuples(JOBS, NUMBERS, NUMBERS, st.integers(1, 99))


@given(PODS, PODS)
def test_two_pods_share_a_name_only_if_job_attempt_rank_and_incarnation_are_the_same(
    one: tuple[str, int, int, int], other: tuple[str, int, int, int]
) -> None:
    assert (pod_name(*one) == pod_name(*other)) == (one == other)


def test_a_job_named_like_another_s_pods_shares_no_pod_with_it() -> None:
    assert pod_name("a", 1, 2) != pod_name("a-1", 2, 0)
    assert pod_name("a", 1, 2, 3) != pod_name("a-1", 2, 3)
    assert pod_name("a", 1, 2, 3) not in {pod_name("a-1-2", 3, 0), pod_name("a-1-2-i3", 1, 0)}


def test_a_pod_that_was_never_replaced_has_the_name_that_it_always_had() -> None:
    assert (pod_name("a", 1, 2, 1), pod_name("a", 1, 2, 2)) == ("a-1-2", "a-1-2-i2")


def test_labels_lie_in_oarlock_s_own_domain() -> None:
    assert {label.value for label in Label} == {
        "oarlock.dev/job",
        "oarlock.dev/job-uid",
        "oarlock.dev/attempt",
        "oarlock.dev/rank",
        "oarlock.dev/incarnation",
        "oarlock.dev/output",
    }


def test_one_node_meets_on_its_own_address() -> None:
    assert rendezvous_address(job="j", namespace="n", nodes=1) == "127.0.0.1"


def test_every_variable_that_operator_and_agent_set_is_reserved_and_simulation_alone_is_free() -> None:
    env = gang_environment(nodes=2, gpus_per_node=0, address="a", port=1)
    env |= pod_environment(job="j", attempt=1, rank=0, output_directory="/o")
    assert env.keys() <= RESERVED
    assert all(is_reserved(name) for name in env)
    assert is_reserved("OARLOCK_ANYTHING")
    assert not is_reserved(SIMULATE_GPUS)
    assert not is_reserved("NCCL_DEBUG")
    assert env[Variable.NUM_PROCESSES] == "2", "one rank on the CPU where no GPU is asked for"


@given(step=st.integers(0, 10**12 - 1), attempt=st.integers(0, 10**9 - 1))
def test_a_checkpoint_s_name_tells_its_step_and_attempt(step: int, attempt: int) -> None:
    assert parse_checkpoint_name(checkpoint_name(step, attempt)) == (step, attempt)


@pytest.mark.parametrize(
    "name",
    ["step-1-a1\n", "step-1-a1.tmp", ".step-1-a1", "step-1", "step--1-a1", "step-1-a", "step-٣-a1", "checkpoint-1"],
)
def test_any_other_name_is_no_checkpoint(name: str) -> None:
    assert parse_checkpoint_name(name) is None


def test_the_fence_reads_what_it_wrote_and_ignores_what_a_later_version_adds() -> None:
    owner = Owner(job_uid="uid", attempt=7)
    assert parse_owner(owner.to_json()) == owner
    assert parse_owner('{"jobUid": "uid", "attempt": 7, "since": "yesterday"}') == owner


def test_the_fence_names_a_later_round_and_says_nothing_of_the_first() -> None:
    later = Owner(job_uid="uid", attempt=7, round=3)
    assert parse_owner(later.to_json()) == later
    assert (later.round_mark, Owner(job_uid="uid", attempt=7).round_mark) == ("-r3", "")
    assert "round" not in Owner(job_uid="uid", attempt=7, round=1).to_json()


@pytest.mark.parametrize("body", ["", "{}", '{"jobUid": "", "attempt": 1}', '{"jobUid": "u", "attempt": "1"}', "[]"])
def test_a_fence_that_names_nobody_is_unreadable(body: str) -> None:
    with pytest.raises(WireError):
        parse_owner(body)
