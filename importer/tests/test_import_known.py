"""Each option of SimpleTuner is known: it is taken, asks for nothing, or is refused with a reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_import import checkout
from oarlock_import.family import words_by_name
from oarlock_import.importing import OPTIONS
from oarlock_import.rows import Fate
from oarlock_import.simpletuner import DEFAULTS, FAMILIES, VERSION

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Imported

OUR_OWN = {"model_flavour", "model_flavor"}
"""Whose default is that of the family."""
ALWAYS_SAID = {"model_family", "model_type", "data_backend_config", "output_dir", "max_train_steps", "num_train_epochs"}
"""What a configuration cannot do without, or what decides how long it is."""


def test_the_table_is_of_a_version_and_has_all_its_options() -> None:
    assert VERSION == "4.8.0"
    assert len(DEFAULTS) > 530
    assert {"lr_scheduler", "validation_steps", "strict_epoch_limit"} <= DEFAULTS.keys()


def test_each_option_of_simpletuner_has_a_row() -> None:
    assert DEFAULTS.keys() - OPTIONS.keys() == set()


def test_defaults_are_simpletuners_own() -> None:
    own = {key: row.default for key, row in OPTIONS.items() if row.default is not None and key not in OUR_OWN}
    assert {key: value for key, value in own.items() if key in DEFAULTS and not same(value, DEFAULTS[key])} == {}


def same(own: Any, theirs: Any) -> bool:
    return bool(own == theirs or float(own) == float(theirs))


def test_options_at_their_defaults_are_never_refused(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(simple | {key: value for key, value in DEFAULTS.items() if key not in ALWAYS_SAID}, folder)
    assert job.refused == {}


def test_no_option_is_called_a_misspelling(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(simple | dict.fromkeys(DEFAULTS, "odd"), folder)
    assert {key: words for key, words in job.refused.items() if "not known" in words or "makes use" in words} == {}
    assert [row.key for row in OPTIONS.values() if row.fate is not Fate.MAPPED and not row.why] == []


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_flavours_and_layers_are_those_of_simpletuner(family: str) -> None:
    words, theirs = words_by_name(family), FAMILIES[family]
    assert words.default == theirs["default"]
    for flavour, flavor in words.flavors.items():
        assert words.repositories[flavor].lower() == theirs["flavours"][flavour].lower()
    if words.targets:
        assert list(words.targets) == theirs["layers"]


def test_a_checkout_is_read_without_running_more_than_its_list_of_options(tmp_path: Path) -> None:
    """A checkout in small, whose other modules would fail."""
    package = tmp_path / "simpletuner"
    registry = package / "simpletuner_sdk/server/services/field_registry"
    models = package / "helpers/models"
    registry.mkdir(parents=True)
    (package / "__init__.py").write_text('import nowhere\n__version__ = "9.9.9"\n')
    (registry / "__init__.py").touch()
    (registry / "registry.py").write_text(
        "from dataclasses import dataclass\n"
        "from simpletuner.helpers.training.odd import SIZE, keys\n"
        "@dataclass\nclass Field:\n    name: str\n    arg_name: str\n    default_value: object\n    aliases: tuple = ()\n"
        "class FieldRegistry:\n"
        "    _fields = {n: Field(n, f'--{n}', d, a) for n, d, a in\n"
        "        [('rank', 16, ('--lora-rank',)), ('keys', keys(), ()), ('size', SIZE, ()), ('on', True, ())]}\n"
    )
    for family in checkout.FAMILIES:
        (models / family).mkdir(parents=True)
        (models / family / "model.py").write_text(
            "import nowhere\nclass M(Base):\n    BIG = 'a/big'\n    DEFAULT_MODEL_FLAVOUR: str = 'small'\n"
            "    HUGGINGFACE_PATHS = {'small': 'a/small', 'big': BIG}\n"
        )
    env = package / "helpers/configuration/env_file.py"
    env.parent.mkdir()
    env.write_text("import nowhere\nNAMES = {'SEED': '--seed', 'LR': '--lr'}\n")
    (models / "common.py").write_text("class Base:\n    DEFAULT_LORA_TARGET = ['to_q']\n")
    assert checkout.main([str(tmp_path), "--output", str(tmp_path / "out.json")]) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["version"] == "9.9.9"
    assert found["options"] == {"keys": None, "lora_rank": 16, "on": True, "rank": 16, "size": None}
    assert found["variables"] == ["LR", "SEED"]
    assert found["families"]["flux"] == {
        "default": "small",
        "flavours": {"small": "a/small", "big": "a/big"},
        "layers": ["to_q"],
    }
