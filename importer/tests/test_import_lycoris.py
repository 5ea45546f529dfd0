"""LyCORIS' adapters, from the configurations that SimpleTuner's guide and users have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_import.rows import Fate
from oarlock_import.tables.lycoris import LYCORIS, PRESET

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Imported

    from oarlock_import.rows import Row

NAMED = "config/lycoris_config.json"
GUIDE = {
    "algo": "lokr",
    "multiplier": 1.0,
    "linear_dim": 10000,
    "linear_alpha": 1,
    "factor": 10,
    "apply_preset": {
        "target_module": ["Attention", "FeedForward"],
        "module_algo_map": {"Attention": {"factor": 10}, "FeedForward": {"factor": 4}},
    },
}
"""What SimpleTuner's guide writes."""
FEED_FORWARD = ["ff.net.0.proj", "ff.net.2", "ff_context.net.0.proj", "ff_context.net.2"]
VALUES = {
    "algo": "lokr",
    "full_matrix": True,
    "decompose_both": True,
    "apply_preset": {"target_module": ["Attention"]},
    "target_module": ["Attention"],
    "module_algo_map": {"Attention": {"factor": 2}},
}
"""Values for keys that do not take a number."""


@pytest.fixture
def lycoris(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> Callable[..., Imported]:
    """Import an adapter with this configuration, and these other options."""

    def call(configuration: Any, **options: Any) -> Imported:
        given = simple | {"model_type": "lora", "lora_type": "lycoris", "lycoris_config": NAMED} | options
        return imported(given, folder, files={NAMED: json.dumps(configuration)})

    return call


def test_the_configuration_of_the_guide_becomes_whole_factors(lycoris: Callable[..., Imported]) -> None:
    job = lycoris(GUIDE, base_model_precision="int8-quanto", init_lora="/adapters/boats")
    assert job.spec["training"]["lora"] == {
        "algorithm": "LoKr",
        "targets": ["all", *FEED_FORWARD],
        "quantizeBase": "Int8",
        "lokr": {"factor": 10, "fullMatrix": True, "factors": [{"targets": FEED_FORWARD, "factor": 4}]},
    }
    assert job.spec["training"]["initFrom"] == {"path": "/adapters/boats"}


def test_a_rank_and_its_alpha_stay_as_they_are(lycoris: Callable[..., Imported]) -> None:
    changed = {"linear_dim": 32, "linear_alpha": 8, "factor": -1, "decompose_both": True}
    preset = {"apply_preset": {"target_module": ["FluxAttention"]}}
    assert lycoris(GUIDE | changed | preset).spec["training"]["lora"] == {
        "algorithm": "LoKr",
        "rank": 32,
        "alpha": 8,
        "targets": ["all"],
        "quantizeBase": "None",
        "lokr": {"factor": -1, "decomposeBoth": True},
    }


def test_full_matrix_outranks_the_rank(lycoris: Callable[..., Imported]) -> None:
    job = lycoris(GUIDE | {"linear_dim": 16, "full_matrix": True})
    assert job.spec["training"]["lora"]["lokr"]["fullMatrix"] is True
    assert "rank" not in job.spec["training"]["lora"]
    assert job.ignored["linear_dim"] == "whole factors have no rank"


def test_options_of_standard_adapters_have_no_say(lycoris: Callable[..., Imported]) -> None:
    job = lycoris(GUIDE, lora_rank=64, lora_dropout=0.3, flux_lora_target="mmdit")
    assert {"lora_rank", "lora_dropout", "flux_lora_target"} <= job.ignored.keys()
    assert "dropout" not in job.spec["training"]["lora"]


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({"algo": "loha"}, "algo"),
        ({"linear_dim": 2000}, "linear_dim"),
        ({"multiplier": 0.5}, "multiplier"),
        ({"use_scalar": True}, "use_scalar"),
        ({"dora_wd": True}, "dora_wd"),
        ({"apply_preset": {}}, "apply_preset"),
        ({"apply_preset": {"target_module": ["Linear"]}}, "target_module"),
        ({"apply_preset": {"enable_conv": False}}, "target_module"),
        ({"apply_preset": {"name_algo_map": {"transformer_blocks.*": {"factor": 4}}}}, "name_algo_map"),
        ({"apply_preset": {"module_algo_map": {"Attention": {"algo": "loha"}}}}, "module_algo_map"),
        ({"never_heard_of": 1}, "never_heard_of"),
    ],
)
def test_what_is_not_here_is_refused(changed: dict[str, Any], refused: str, lycoris: Callable[..., Imported]) -> None:
    job = lycoris(GUIDE | changed)
    assert refused in job.refused
    assert job.text == ""


def test_a_configuration_that_is_not_there_or_is_none_is_refused(lycoris: Callable[..., Imported]) -> None:
    assert "is not found" in lycoris(GUIDE, lycoris_config="elsewhere.json").refused["lycoris_config"]
    assert lycoris([]).refused == {"lycoris_config": "is no configuration of LyCORIS"}
    assert list(lycoris(GUIDE, init_lokr_norm=1e-3).refused) == ["init_lokr_norm"]


@pytest.mark.parametrize("row", LYCORIS, ids=lambda row: row.key)
def test_each_key_has_its_fate(row: Row, lycoris: Callable[..., Imported]) -> None:
    job = lycoris(GUIDE | {row.key: VALUES.get(row.key, 7)})
    _check(job, row, NAMED)


@pytest.mark.parametrize("row", PRESET, ids=lambda row: row.key)
def test_each_key_of_a_preset_has_its_fate(row: Row, lycoris: Callable[..., Imported]) -> None:
    job = lycoris(GUIDE | {"apply_preset": VALUES["apply_preset"] | {row.key: VALUES.get(row.key, 7)}})
    _check(job, row, f"{NAMED}[apply_preset]")


def _check(job: Imported, row: Row, source: str) -> None:
    (found,) = [entry for entry in job.report.entries if (entry.key, entry.source) == (row.key, source)]
    assert found.fate in {row.fate, Fate.IGNORED}
    assert (row.fate is Fate.REFUSED) == (row.key in job.refused)
