"""Rights on gang systems' objects: none without their key, and with the keys those that the operator uses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_local.api import ApiServer
from oarlock_local.gang_server import gang_server
from oarlock_local.rights import Right, granted, never_used
from oarlock_local.sources import SourceMissing
from oarlock_operator.schedulers import SYSTEMS, kai
from tests.chart.demands import operator_of
from tests.chart.gang_demands import GangDemands, gang_systems, kinds_of_gang_systems
from tests.chart.rendering import render

if TYPE_CHECKING:
    from oarlock_local.cluster import Cluster

APIS = {gang.value.lower(): system.apis for gang, system in SYSTEMS.items() if system.apis}
APIS["kai"] += (kai.TOPOLOGIES,)
"""Key of the chart -> what the operator knows of the system."""
ALL = dict.fromkeys(APIS, True)


def brought(helm_program: Path, keys: dict[str, bool], **values: Any) -> set[Right]:
    """The rights that the keys add to those without them."""
    without, with_keys = (
        granted(render(helm_program, {**values, **gang}), "oarlock-operator") for gang in ({}, {"gang": keys})
    )
    return with_keys - without


@pytest.fixture
def kinds() -> list[dict[str, Any]]:
    try:
        return kinds_of_gang_systems()
    except SourceMissing as error:
        pytest.skip(str(error))


@pytest.mark.deep
@pytest.mark.cluster
def test_the_operator_uses_every_right_on_gang_systems_that_it_has_and_has_every_right_that_it_uses(
    helm_program: Path, kinds: list[dict[str, Any]], serving: Cluster, tmp_path: Path
) -> None:
    objects = render(helm_program, {"gang": ALL}, release="gangs")
    with (
        gang_server(serving, tmp_path) as server,
        ApiServer(serving.kubeconfig) as api,
        ApiServer(server) as api_with_gangs,
        gang_systems(kinds, serving, api, api_with_gangs),
        operator_of(objects, serving, tmp_path, server=server) as account,
    ):
        demands = GangDemands(serving, api_with_gangs, "gangs")
        demands.two_attempts_of_each_system()
        demands.a_wait_in_a_queue_of_kueue()
    assert never_used(brought(helm_program, ALL), account.asked()) == set()
    assert account.complaint() == ""


def test_each_key_brings_the_rights_on_its_own_system_and_all_of_them_bring_no_more(helm_program: Path) -> None:
    each = {key: brought(helm_program, {key: True}) for key in APIS}
    for key, rights in each.items():
        assert {right.group for right in rights} == {api.partition("/")[0] for api in APIS[key]}
    assert set().union(*each.values()) == brought(helm_program, ALL)
    assert each["native"] == {replace(right, group="scheduling.k8s.io") for right in each["volcano"]}


def test_in_namespaces_the_rights_are_the_same_but_for_what_is_no_namespaces(helm_program: Path) -> None:
    topologies = {right for right in brought(helm_program, ALL) if right.resource == "topologies"}
    everywhere = brought(helm_program, ALL) - topologies
    within = {replace(right, namespace=name) for right in everywhere for name in ("a", "b")}
    assert topologies
    assert brought(helm_program, ALL, namespaces=["a", "b"]) == within
