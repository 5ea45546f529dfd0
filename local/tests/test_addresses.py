"""Clusters of one machine do not share addresses."""

import ipaddress
import itertools

import pytest

from oarlock_local.addresses import MOST_NODES, Addresses
from oarlock_local.errors import MachineError
from oarlock_local.slots import COUNT, lease, lease_any


def test_no_two_slots_share_an_address() -> None:
    ranges = [Addresses(slot).all for slot in range(COUNT)]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(ranges, 2))


def test_every_address_of_a_cluster_is_in_its_range_and_used_once() -> None:
    cluster = Addresses(7)
    nodes = [cluster.node(number) for number in range(1, MOST_NODES + 1)]
    single = [cluster.control_plane, cluster.host, *nodes]
    assert len(set(single)) == len(single)
    assert all(ipaddress.ip_address(address) in cluster.all for address in single)
    pods = [ipaddress.ip_network(cluster.pods(number)) for number in range(1, MOST_NODES + 1)]
    assert all(network.subnet_of(cluster.all) for network in pods)
    assert not any(ipaddress.ip_address(address) in network for address in single for network in pods)


def test_link_layer_addresses_are_given_and_used_once() -> None:
    given = [Addresses(slot).hardware(number) for slot in (0, 99) for number in range(MOST_NODES + 1)]
    assert len(set(given)) == len(given)
    # Locally administered, and of one station: the second-lowest bit set, the lowest not.
    assert all(int(address.split(":")[0], 16) & 3 == 2 for address in given)


def test_a_control_plane_alone_listens_on_the_loopback_only() -> None:
    assert ipaddress.ip_address(Addresses(3, loopback_only=True).control_plane).is_loopback


def test_a_slot_is_taken_until_its_holder_closes_it() -> None:
    number, holder = lease_any()
    assert lease(number) is None
    holder.close()
    again = lease(number)
    assert again is not None
    again.close()


def test_a_machine_without_a_free_slot_is_told_what_to_do() -> None:
    with pytest.raises(MachineError, match="down"):
        lease_any(())
