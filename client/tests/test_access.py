"""Kubeconfigs as people have them, and answers that are none of an API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ended import Oarlock
from fake_api import JOBS, FakeApi
from urllib3 import PoolManager

from oarlock import Client, NoClusterError, RefusedError, cluster
from oarlock.cluster import connect


def change(tmp_path: Path, **parts: Any) -> None:
    """Change fields of the kubeconfig; None takes one out."""
    path = tmp_path / "config"
    config = {**json.loads(path.read_text()), **parts}
    path.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))


@pytest.mark.parametrize("current", [None, "", "gone"])
def test_a_context_that_is_named_needs_no_current_one(
    api: FakeApi, oarlock: Oarlock, tmp_path: Path, current: str | None
) -> None:
    api.add_job("lora", "team")
    change(tmp_path, **{"current-context": current})
    assert oarlock("ls", "--context", "other", "-o", "name").out == "lora\n"
    assert oarlock("ls").code == 6


@pytest.mark.parametrize("field", ["as", "as-uid", "as-groups", "as-user-extra"])
def test_who_would_act_as_another_does_not_act_as_itself(
    api: FakeApi, oarlock: Oarlock, tmp_path: Path, field: str
) -> None:
    change(tmp_path, users=[{"name": "me", "user": {"token": "t0ken", field: ["viewer"]}}])
    ended = oarlock("ls")
    assert (ended.code, api.asked) == (6, [])
    assert f"acts as another ({field})" in ended.err


@pytest.mark.usefixtures("api")
def test_an_identity_provider_that_fails_is_one_line_and_6(oarlock: Oarlock, tmp_path: Path) -> None:
    provider = {"idp-issuer-url": "http://127.0.0.1:1", "id-token": "e30.eyJleHAiOjF9.e30", "client-id": "x"}
    change(tmp_path, users=[{"name": "me", "user": {"auth-provider": {"name": "oidc", "config": provider}}}])
    ended = oarlock("ls")
    assert ended.code == 6
    assert "cannot be used" in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "why"),
    [("/nowhere/login", "No such file"), ("/bin/false", "process returned 1"), ("/bin/true", "failed to decode")],
)
def test_a_plugin_that_gives_no_credentials_is_one_line_and_6_and_nobody_is_asked(
    api: FakeApi, oarlock: Oarlock, tmp_path: Path, command: str, why: str
) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": command, "interactiveMode": "Never"}
    change(tmp_path, users=[{"name": "me", "user": {"exec": plugin}}])
    ended = oarlock("ls")
    assert (ended.code, ended.err.count("\n"), api.asked) == (6, 1, [])
    assert f"the plugin {command} of the kubeconfig" in ended.err
    assert why in ended.err


def test_a_plugin_that_gives_a_token_is_obeyed(api: FakeApi, oarlock: Oarlock, tmp_path: Path) -> None:
    api.add_job("flux")
    version = "client.authentication.k8s.io/v1"
    given = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": "t0ken"}}
    plugin = {"apiVersion": version, "command": "/bin/echo", "args": [json.dumps(given)], "interactiveMode": "Never"}
    change(tmp_path, users=[{"name": "me", "user": {"exec": plugin}}])
    assert oarlock("ls", "-o", "name") == (0, "flux\n", "")


def test_a_pods_account_that_cannot_be_used_is_one_line_and_6(
    oarlock: Oarlock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("t0ken")
    monkeypatch.setattr("oarlock.access.ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    ended = oarlock("ls")
    assert (ended.code, ended.err.count("\n")) == (6, 1)
    assert "this pod's account cannot be used: " in ended.err


def test_credentials_that_cannot_be_refreshed_later_are_a_hiccup() -> None:
    class TooOld:
        host = "http://127.0.0.1:1"
        pool = PoolManager()

        def authorize(self, _: dict[str, str]) -> None:
            raise ValueError("the token is too old")

    with pytest.raises(NoClusterError, match="cannot be refreshed: the token"):
        cluster.Cluster(TooOld(), namespace="default", where="the cluster").get("/version")


@pytest.mark.parametrize("body", ["<html>Log in</html>", "[1]", '"x"', "[" * 100_000])
def test_a_page_of_a_proxy_is_one_line_and_6(api: FakeApi, oarlock: Oarlock, body: str) -> None:
    api.logs[f"{JOBS.format('default')}/flux"] = body.encode()
    ended = oarlock("get", "flux")
    assert ended.code == 6
    assert "does a proxy stand before it?" in ended.err
    assert len(ended.err) < 400


def test_an_answer_is_read_with_a_bound(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "MOST_BYTES", 1000)
    path = f"{JOBS.format('default')}/flux"
    api.logs[path] = json.dumps({"x": "y" * 991}).encode()
    assert connect().get(path) == {"x": "y" * 991}
    api.logs[path] += b" "
    with pytest.raises(RefusedError, match="is longer than"):
        connect().get(path)


def test_a_node_that_is_not_there_is_looked_for_among_nodes(api: FakeApi, oarlock: Oarlock) -> None:
    api.add_job("flux")
    ended = oarlock("uncordon", "gpu-9")
    assert ended.code == 4
    assert "see `oarlock nodes`" in ended.err
    with pytest.raises(Exception, match="oarlock ls -A"):
        _ = Client().job("lora").row
