"""What Stable Diffusion 3.5's forward pass alone promises, beside test_forward_pass.py."""

from __future__ import annotations

import pytest

from oarlock_trainer.ranks import preload

preload.settle_environment()
from sd3_pair import PAIR, batch, pair  # noqa: E402


def test_what_this_forward_pass_does_not_know_is_refused() -> None:
    mine = PAIR.ours(pair()[1])
    with pytest.raises(ValueError, match="ip_adapter_image_embeds"):
        mine(**batch() | {"joint_attention_kwargs": {"ip_adapter_image_embeds": None}})
