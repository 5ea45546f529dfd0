"""Where the ranks of a gang are, as rank 0 knows it for the history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from gangs import KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangs import Gang


@pytest.mark.parametrize("key", [None, KEY])
def test_rank_0_knows_the_nodes_of_all_that_have_joined_and_others_know_none(
    gang_of: Callable[..., Gang], key: bytes | None
) -> None:
    gang = gang_of(3, key=key)
    gang.join(1, node="node-b")
    gang.join(2, node="node-c")
    gang.stand(1, 2)
    assert gang.links[0].nodes == {0: "", 1: "node-b", 2: "node-c"}
    assert gang.links[1].nodes == {}
