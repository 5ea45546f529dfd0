"""Who is cut off, as far as it can be told from who reaches whom."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_trainer.preflight.collective import reach


def rows(nodes: int, *broken: tuple[int, int]) -> dict[int, reach.Row]:
    """Each reaches each in a millisecond, but for the pairs (who, whom)."""
    return {
        one: {other: None if (one, other) in broken else 1 for other in range(nodes) if other != one}
        for one in range(nodes)
    }


@pytest.mark.parametrize(
    ("found", "blamed"),
    [
        pytest.param(rows(4), [], id="all is well"),
        pytest.param(rows(2, (0, 1)), [], id="of two nodes none can be told"),
        pytest.param(rows(3, (0, 1)), [], id="one pair alone"),
        pytest.param(rows(3, (0, 2), (1, 2)), [2], id="nobody reaches it"),
        pytest.param(rows(3, (2, 0), (2, 1)), [2], id="it reaches nobody"),
        pytest.param(rows(4, (0, 3), (3, 1)), [3], id="one way each"),
        pytest.param(rows(4, (0, 1), (2, 3)), [], id="two pairs without a common node"),
        pytest.param(rows(3, (0, 1), (0, 2), (1, 2)), [], id="nobody reaches anybody"),
        pytest.param(rows(5, (0, 4), (1, 4), (2, 4), (3, 4), (0, 3), (1, 3), (2, 3)), [3, 4], id="two are cut off"),
        pytest.param(rows(5, *[(a, b) for a in (0, 1, 2) for b in (3, 4)]), [3, 4], id="the smaller part"),
        pytest.param(rows(4, *[(a, b) for a in (0, 1) for b in (2, 3)]), [], id="two halves"),
    ],
)
def test_a_node_is_blamed_only_where_it_misses_more_than_half_of_the_others_and_few_do(
    found: dict[int, reach.Row], blamed: list[int]
) -> None:
    assert reach.cut_off(found) == blamed


def test_a_peer_that_a_node_says_nothing_of_is_not_reached() -> None:
    assert reach.broken_pairs({0: {1: 3}, 1: {}}) == [(0, 1)]


@given(st.integers(2, 7), st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6))))
def test_most_nodes_are_never_blamed(nodes: int, broken: set[tuple[int, int]]) -> None:
    assert len(reach.cut_off(rows(nodes, *broken))) < nodes / 2


def test_a_listener_is_reached_in_milliseconds_and_a_closed_port_is_not() -> None:
    with reach.listen("127.0.0.1", backlog=2) as listener, socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
        closed.close()
        found = reach.probe({1: ("127.0.0.1", listener.getsockname()[1]), 4: ("127.0.0.1", port)}, seconds=5.0)
    assert isinstance(found[1], int)
    assert found[4] is None
