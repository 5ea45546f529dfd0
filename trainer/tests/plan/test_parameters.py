"""Parameters of adapters, and configurations that say too little. Of models: models/test_counted.py."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from oarlock_api.weights import AdapterAlgorithm, Lokr, LokrFactor, Lora
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.plan.parameters import adapters, read_architecture
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("rank", "millions"), [(16, 65.4), (64, 261.7)])
def test_adapters_grow_with_their_rank(rank: int, millions: float) -> None:
    found = adapters(FLUX1.published, Lora(rank=rank), FLUX1.presets)
    assert found.trained / 1e6 == pytest.approx(millions, abs=0.05)
    assert found.frozen == 11_901_408_320


def test_adapters_stand_where_names_and_presets_say() -> None:
    width = FLUX1.published.width
    assert adapters(FLUX1.published, Lora(rank=4, targets=("attn.to_q",)), FLUX1.presets).trained == 57 * 4 * 2 * width
    assert adapters(FLUX1.published, Lora(rank=4, targets=("nano",)), FLUX1.presets).trained == 4 * 6 * width
    with pytest.raises(ConfigurationError, match='"o_q" is the end of no linear layer'):
        adapters(FLUX1.published, Lora(rank=4, targets=("o_q",)), FLUX1.presets)


@pytest.mark.parametrize(
    ("lokr", "of_a_layer"),
    [
        (Lokr(), 16**2 + 2 * 16 * 192),
        (Lokr(decompose_both=True, factor=48), 2 * 16 * 48 + 2 * 16 * 64),
        (Lokr(full_matrix=True), 16**2 + 192**2),
        (Lokr(full_matrix=True, factors=(LokrFactor(targets=("to_q",), factor=8),)), 8**2 + 384**2),
    ],
)
def test_kronecker_adapters_shrink_with_their_factor(lokr: Lokr, of_a_layer: int) -> None:
    found = adapters(
        FLUX1.published, Lora(algorithm=AdapterAlgorithm.LOKR, lokr=lokr, targets=("attn.to_q",)), FLUX1.presets
    )
    assert found.trained == 57 * of_a_layer
    assert found.frozen == 11_901_408_320


@pytest.mark.parametrize("content", ["{", "[]", json.dumps({"num_layers": 2})])
def test_a_configuration_that_says_too_little_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "transformer").mkdir()
    (tmp_path / "transformer" / "config.json").write_text(content)
    with pytest.raises(ConfigurationError, match=r"transformer/config\.json cannot be read"):
        read_architecture(tmp_path, FLUX1)
