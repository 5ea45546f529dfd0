"""Secrets reach pods by reference; job.json names the variables that hold them and holds none."""

from __future__ import annotations

import json
from typing import Any

from jobs import job, spec
from made_pods import container, environment, made

from oarlock_api.contract.job_file import parse_job_file
from oarlock_api.contract.secrets import secret_variable
from oarlock_api.spec import TrainingJobSpec
from oarlock_operator.manifests.config import job_file


def secretive() -> TrainingJobSpec:
    connection = {"name": "default", "credentialsSecretRef": {"name": "r2-keys"}}
    training = spec().training
    assert training is not None
    raw = {**training.to_manifest(), "s3Connections": [connection]}
    env = [{"name": "TOKEN", "value": "hunter2"}]
    return spec(training=raw, pod={"env": env}, webhooks=WEBHOOKS)


WEBHOOKS: list[dict[str, Any]] = [
    {
        "name": "orchestrator",
        "url": "https://orchestrator.example.com/faults",
        "authSecretRef": {"name": "hooks", "key": "token"},
        "signatureSecretRef": {"name": "hooks", "key": "signing-key"},
        "events": ["gpu.fault"],
        "minLevel": "Warning",
    },
    {
        "name": "chat",
        "type": "Discord",
        "urlSecretRef": {"name": "chat", "key": "url"},
        "authSecretRef": {"name": "hooks", "key": "token"},
        "messagePrefix": "[flux]",
    },
]


def test_each_secret_of_the_webhooks_becomes_one_variable_by_reference_and_no_value() -> None:
    secrets = {name: value for name, value in environment(made(webhooks=WEBHOOKS)).items() if "SECRET" in name}
    assert secrets == {
        secret_variable("hooks", "token"): {"secretKeyRef": {"name": "hooks", "key": "token"}},
        secret_variable("hooks", "signing-key"): {"secretKeyRef": {"name": "hooks", "key": "signing-key"}},
        secret_variable("chat", "url"): {"secretKeyRef": {"name": "chat", "key": "url"}},
    }
    assert not [name for name in environment(made()) if "SECRET" in name]


def test_the_keys_of_an_s3_connection_s_secret_become_variables_once_and_a_session_token_may_be_missing() -> None:
    connections = [
        {"name": "default", "credentialsSecretRef": {"name": "r2-keys"}},
        {"name": "again", "credentialsSecretRef": {"name": "r2-keys"}},
        {"name": "chain"},
    ]
    training = spec().training
    assert training is not None
    manifest = made(training={**training.to_manifest(), "s3Connections": connections})
    named = [variable["name"] for variable in container(manifest)["env"]]
    assert len(named) == len(set(named))
    secrets = {name: value for name, value in environment(manifest).items() if "SECRET" in name}
    assert secrets == {
        secret_variable("r2-keys", key): {"secretKeyRef": {"name": "r2-keys", "key": key, **optional}}
        for key, optional in (
            ("AWS_ACCESS_KEY_ID", {}),
            ("AWS_SECRET_ACCESS_KEY", {}),
            ("AWS_SESSION_TOKEN", {"optional": True}),
        )
    }


def test_the_tokens_of_model_hubs_become_variables_by_reference() -> None:
    read, write = {"name": "hub", "key": "read"}, {"name": "hub", "key": "write"}
    plain = spec().training
    assert plain is not None
    training = plain.to_manifest() | {
        "model": {"family": "Flux1", "hub": {"repo": "o/m", "tokenSecretRef": read}},
        "publish": [{"name": "hub", "hub": {"repo": "o/n", "tokenSecretRef": write}}],
    }
    secrets = {name: value for name, value in environment(made(training=training)).items() if "SECRET" in name}
    assert secrets == {
        secret_variable("hub", "read"): {"secretKeyRef": read},
        secret_variable("hub", "write"): {"secretKeyRef": write},
    }


def test_the_keys_of_a_tracker_s_secret_become_variables_and_any_may_be_missing() -> None:
    tracking = [
        {"name": "board"},
        {"name": "wandb", "type": "Wandb", "secretRef": {"name": "figures"}},
        {"name": "mlflow", "type": "MLflow", "url": "https://mlflow.example.com", "secretRef": {"name": "figures"}},
    ]
    plain = spec().training
    assert plain is not None
    manifest = made(training={**plain.to_manifest(), "tracking": tracking})
    secrets = {name: value for name, value in environment(manifest).items() if "SECRET" in name}
    assert secrets == {
        secret_variable("figures", key): {"secretKeyRef": {"name": "figures", "key": key, "optional": True}}
        for key in (
            "WANDB_API_KEY",
            "WANDB_ENTITY",
            "MLFLOW_TRACKING_TOKEN",
            "MLFLOW_TRACKING_USERNAME",
            "MLFLOW_TRACKING_PASSWORD",
        )
    }


def test_job_json_tells_the_webhooks_as_they_are_in_the_spec_and_pods_have_the_variables_of_their_secrets() -> None:
    body = job_file(job(), secretive(), 1).to_json()
    assert json.loads(body)["webhooks"] == WEBHOOKS
    hooks = parse_job_file(body).webhooks
    named = [one for hook in hooks for one in (hook.url_secret_ref, hook.auth_secret_ref, hook.signature_secret_ref)]
    told = {secret_variable(one.name, one.key) for one in named if one}
    assert told == {name for name in environment(made(webhooks=WEBHOOKS)) if "SECRET" in name}


def test_job_json_holds_names_of_secrets_at_most_and_none_of_the_environment() -> None:
    body = job_file(job(), secretive(), 1).to_json()
    assert "hunter2" not in body
    assert json.loads(body)["training"]["s3Connections"][0]["credentialsSecretRef"] == {"name": "r2-keys"}
