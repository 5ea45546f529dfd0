"""The plain classes of the sections that pods read are the models' own fields, names and defaults."""

from __future__ import annotations

from dataclasses import MISSING, fields

import pytest

from oarlock_api import sections
from oarlock_api.contract import sections as plain
from oarlock_api.elastic import Elastic
from oarlock_api.group import Group
from oarlock_api.pod import Ports
from oarlock_api.recovery import MemoryState, Preflight, Recovery
from oarlock_api.spec import Custom
from oarlock_api.webhooks import Webhook


def test_the_committed_classes_are_what_the_models_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert sections.main(["--check"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    "model", [Custom, Ports, Preflight, MemoryState, Recovery, Elastic, Webhook], ids=lambda model: model.__name__
)
def test_a_class_has_the_defaults_of_its_model(model: type) -> None:
    found = {field.name: field.default for field in fields(getattr(plain, model.__name__))}
    of_model = {
        name: MISSING if field.is_required() else _plain(field.default)
        for name, field in model.model_fields.items()
        if model.for_pods is None or name in model.for_pods
    }
    assert found == of_model


def _plain(default: object) -> object:
    """A section within another one is a plain class, too; its own defaults are compared with its own model's."""
    return getattr(plain, type(default).__name__)() if isinstance(default, Group) else default


def test_of_recovery_pods_are_told_what_they_act_on_and_no_more() -> None:
    assert [field.name for field in fields(plain.Recovery)] == [
        "in_place",
        "standby_seconds",
        "memory",
        "hang_seconds",
        "drill_every_steps",
    ]
