"""Settings come from flags and from the environment, and what can't be used ends the process with words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_settings import CliApp

from oarlock_operator import __main__ as program
from oarlock_operator.process.settings import Settings


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"OARLOCK_OPERATOR_{name.upper()}", raising=False)


def parse(*arguments: str) -> Settings:
    return CliApp.run(Settings, cli_args=list(arguments))


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The process up to the point where it would start to work; then it stops with 99."""
    monkeypatch.setattr(sys, "argv", ["oarlock-operator", *arguments])
    monkeypatch.setattr(program.logs, "set_up", lambda **_: sys.exit(99))
    with pytest.raises(SystemExit) as ended:
        sys.exit(program.main())
    return int(str(ended.value.code))


def test_without_anything_the_defaults_hold() -> None:
    settings = parse()
    assert (settings.namespaces, settings.port, settings.leader_election) == ([], 8080, True)


def test_flags_are_the_fields_in_kebab_case_and_lists_repeat() -> None:
    settings = parse(
        "--kubeconfig",
        "/k",
        "--namespaces",
        "a",
        "--namespaces",
        "b",
        "--lease-seconds",
        "3",
        "--leader-election",
        "no",
    )
    assert settings.kubeconfig == Path("/k")
    assert settings.namespaces == ["a", "b"]
    assert settings.lease_seconds == 3
    assert not settings.leader_election


def test_the_environment_says_the_same_and_a_flag_outranks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OARLOCK_OPERATOR_PORT", "9000")
    monkeypatch.setenv("OARLOCK_OPERATOR_WORKERS", "3")
    monkeypatch.setenv("OARLOCK_OPERATOR_NAMESPACES", '["a", "b"]')
    settings = parse("--port", "9001")
    assert (settings.port, settings.workers, settings.namespaces) == (9001, 3, ["a", "b"])


@pytest.mark.parametrize("name", Settings.model_fields)
def test_an_empty_variable_is_an_absent_one(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"OARLOCK_OPERATOR_{name.upper()}", "")
    assert parse() == Settings()


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        parse().port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("--port", "70000"), "port"),
        (("--port", "http"), "port"),
        (("--workers", "0"), "workers"),
        (("--parallel-requests", "257"), "parallel_requests"),
        (("--resync-seconds", "0"), "resync_seconds"),
        (("--progress-seconds", "0.1"), "progress_seconds"),
        (("--lease-seconds", "1"), "lease_seconds"),
        (("--pod-access", "teleport"), "pod_access"),
        (("--log-level", "loud"), "log_level"),
        (("--log-format", "xml"), "log_format"),
        (("--leader-election", "perhaps"), "leader_election"),
        (("--no-such-flag",), "--no-such-flag"),
    ],
)
def test_a_bad_flag_ends_with_2_and_words_that_name_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], name: str
) -> None:
    assert run_main(monkeypatch, *arguments) == 2
    assert name in capsys.readouterr().err


@pytest.mark.parametrize(("name", "value"), [("port", "x"), ("namespaces", "a,b"), ("namespaces", '{"a": 1}')])
def test_a_bad_variable_ends_with_2_and_words_that_name_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    monkeypatch.setenv(f"OARLOCK_OPERATOR_{name.upper()}", value)
    assert run_main(monkeypatch) == 2
    told = capsys.readouterr().err
    assert name in told
    assert "--help" in told
    assert "Traceback" not in told


def test_usable_settings_start_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_main(monkeypatch, "--port", "0") == 99


def test_help_ends_with_0_and_lists_every_field_with_its_description(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    assert run_main(monkeypatch, "--help") == 0
    told = capsys.readouterr().out
    for name, field in Settings.model_fields.items():
        assert f"--{name.replace('_', '-')} " in told
        assert field.description
        assert field.description in told
