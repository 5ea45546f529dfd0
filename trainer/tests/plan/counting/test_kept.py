"""Compiled blocks are counted as the compiler makes them, also in a process that compiles nothing."""

from __future__ import annotations

import os

import pytest

from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled

from oarlock_trainer.plan.counting.kept import compiled  # noqa: E402


def test_what_is_compiled_is_compiled_where_the_environment_says_that_nothing_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    block = torch.nn.Linear(2, 2)
    with compiled(block):
        assert hasattr(block.forward, "_torchdynamo_orig_callable")
    assert os.environ["TORCHDYNAMO_DISABLE"] == "1"
    assert "forward" not in vars(block)
