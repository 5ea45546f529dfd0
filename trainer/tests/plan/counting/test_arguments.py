"""A description of arguments makes what a forward pass is called with."""

from __future__ import annotations

import pytest

from oarlock_trainer.plan.counting.arguments import Description, Each, One, Shapes, Sizes, Values, Where, call_arguments
from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled

SHAPES = Shapes(rows=3, columns=5, text=7, batch=2)


def made(description: Description, **config: object) -> dict[str, object]:
    return call_arguments(description, SHAPES, config, device=torch.device("meta"), dtype=torch.bfloat16)


def test_sizes_are_numbers_names_of_shapes_or_keys_of_the_configuration() -> None:
    found = made({"states": Values(("batch", "image", "channels", 4)), "ids": Values(("text", 3), "int64")}, channels=9)
    assert (found["states"].shape, found["states"].dtype) == ((2, 15, 9, 4), torch.bfloat16)
    assert (found["ids"].shape, found["ids"].dtype) == ((7, 3), torch.int64)
    assert found["return_dict"] is False


def test_lists_have_a_part_for_each_sample() -> None:
    found = made({"shapes": Each(One(Sizes(("frames", "rows", "columns")))), "x": Each(Values(("latent_rows",)))})
    assert found["shapes"] == [[(1, 3, 5)], [(1, 3, 5)]]
    assert [one.shape for one in found["x"]] == [(6,), (6,)]


@pytest.mark.parametrize(("config", "given"), [({"guided": True}, True), ({"guided": False}, False), ({}, False)])
def test_what_the_configuration_says_is_not_there_is_not_given(config: dict[str, bool], given: bool) -> None:  # noqa: FBT001
    assert ("guidance" in made({"guidance": Where("guided", Values(("batch",)))}, **config)) is given


def test_a_size_that_nobody_knows_is_named() -> None:
    with pytest.raises(ValueError, match="'chanels' is no size of"):
        made({"states": Values(("batch", "chanels"))}, channels=9)
