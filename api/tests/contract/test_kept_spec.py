from pathlib import Path

import pytest

from oarlock_api.contract.kept_spec import (
    MAX_SETTINGS,
    SPEC,
    KeptSpec,
    parse_settings,
    parse_spec,
    read_spec,
    settings,
)
from oarlock_api.contract.wire import WireError

KEPT = KeptSpec(job="uid", namespace="team", name="flux", attempt=2, time="t", spec={"nodes": 2, "x": "\u00c4"})


def test_what_is_kept_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_spec(tmp_path) is None
    (tmp_path / SPEC).parent.mkdir(parents=True)
    (tmp_path / SPEC).write_text(KEPT.to_json())
    assert read_spec(tmp_path) == KEPT


@pytest.mark.parametrize("body", ["", "[]", '{"spec": [], "attempt": 1}', '{"spec": {}}'])
def test_what_is_no_kept_spec_is_refused(body: str) -> None:
    with pytest.raises(WireError):
        parse_spec(body)


def test_settings_that_are_too_long_lose_their_longest_fields_and_say_so() -> None:
    spec = {"nodes": 2, "training": {"steps": 7, "data": ["x" * 100] * 1000}, "webhooks": ["y" * 300] * 10}
    told = parse_settings(written := settings(spec))
    assert len(written) <= MAX_SETTINGS
    assert told["nodes"] == 2
    assert told["training"] == {"steps": 7, "data": "(left out: 104000 bytes)"}
    assert len(told["webhooks"]) == 10
    assert len(spec["training"]["data"]) == 1000, "the spec itself stays"  # type: ignore[index]
    assert settings({str(number): number for number in range(10_000)}) == ""
    assert parse_settings("") == {}


def test_kubernetes_expands_nothing_in_settings() -> None:
    assert "$" not in (told := settings({"a": "$(HOME)"}))
    assert parse_settings(told) == {"a": "$(HOME)"}
