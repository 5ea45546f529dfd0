"""A run whose model comes from a store, whose checkpoints are copied to one, and whose result goes to one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import tiny_hub

from oarlock_api.contract.secrets import secret_variable
from oarlock_local.s3 import S3Server, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gang import Gang

MODELS = "models"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    if shutil.which("go") is None:
        pytest.skip("Go is not installed: it builds the S3 server")
    with serving(tmp_path / "s3", buckets=[MODELS]) as running:
        yield running


def files_below(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def s3(prefix: str) -> dict[str, Any]:
    return {"bucket": MODELS, "prefix": prefix}


@pytest.mark.deep
@pytest.mark.timeout(func_only=True)
def test_a_run_reads_copies_and_publishes_in_stores_and_goes_on_where_its_output_is_lost(
    gang: Gang, server: S3Server, tmp_path: Path
) -> None:
    bucket, output = server.folder / MODELS, tmp_path / "output"
    shutil.copytree(gang.model, bucket / "base")
    connection = {
        "name": "default", "endpoint": server.endpoint, "region": server.region,
        "credentialsSecretRef": {"name": "keys"},
    }  # fmt: skip
    data = gang.data(textEmbeds={"path": str(gang.cache / "t")}, imageEmbeds={"path": str(gang.cache / "i")})

    def training(model: dict[str, Any], **fields: Any) -> dict[str, Any]:
        checkpoint = {"intervalSteps": 2, "keep": 1, "upload": s3("copies")} | fields.pop("checkpoint", {})
        wanted = {"model": {"family": "Flux1", **model}, "s3Connections": [connection], "data": data}
        return gang.training(checkpoint=checkpoint, publish=[{"name": "store", "s3": s3("done")}], **wanted, **fields)

    with tiny_hub.serving() as hub:
        hub.add("o/m", gang.model)
        environment = {
            secret_variable("keys", "AWS_ACCESS_KEY_ID"): server.access_key_id,
            secret_variable("keys", "AWS_SECRET_ACCESS_KEY"): server.secret_access_key,
            "HF_ENDPOINT": hub.address, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(tmp_path / "hub"),
            "TMPDIR": str(tmp_path),
        }  # fmt: skip
        first = gang.run(
            output, training({"s3": s3("base")}, steps=5, initFrom={"s3": s3("base")}), environment=environment
        )
        assert first.codes == {0: 0, 1: 0}, gang.log()
        brought = [path for path in (tmp_path / "oarlock-models").iterdir() if path.is_dir()]
        assert sorted((path / "vae").is_dir() for path in brought) == [False, True]  # the model, and initFrom
        assert [path.name for path in (bucket / "copies").iterdir()] == ["step-5-a1"]
        assert files_below(bucket / "copies/step-5-a1") == files_below(output / "checkpoints/step-5-a1")
        assert files_below(bucket / "done") == files_below(output / "model")

        shutil.rmtree(bucket / "copies")  # as if the attempt had been killed right after its last step
        late = gang.run(output, training({"s3": s3("base")}, steps=5), attempt=2, ranks=1, environment=environment)
        assert late.codes == {0: 0}, gang.log()
        assert files_below(bucket / "copies/step-5-a1") == files_below(output / "checkpoints/step-5-a1")

        shutil.rmtree(output)
        again = training({"hub": {"repo": "o/m"}}, steps=7, checkpoint={"resume": "Required"})
        second = gang.run(output, again, uid="another", ranks=1, environment=environment)
        assert second.codes == {0: 0}, gang.log()
        assert [event["step"] for event in second.of("resumed")] == [5]
        assert sorted(second.losses) == [6, 7]
        assert files_below(bucket / "done") == files_below(output / "model")


@pytest.mark.deep
def test_a_plan_of_a_model_on_a_hub_fetches_its_configuration_alone(gang: Gang, tmp_path: Path) -> None:
    manifest = {
        "apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "flux"},
        "spec": {
            "nodes": 1, "gpusPerNode": 8, "output": {"persistentVolumeClaim": {"claimName": "out"}},
            "training": gang.training(model={"family": "Flux1", "hub": {"repo": "o/m"}}, batchSize=1),
        },
    }  # fmt: skip
    (tmp_path / "job.yaml").write_text(json.dumps(manifest))
    with tiny_hub.serving() as hub:
        hub.add("o/m", gang.model)
        own = {"HF_ENDPOINT": hub.address, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(tmp_path / "hub")}
        command = [sys.executable, "-m", "oarlock_trainer", "plan", "-f", str(tmp_path / "job.yaml")]
        plan = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=False)
        assert plan.returncode == 0, plan.stderr
        assert not [path for path in hub.requests("GET", "resolve") if path.endswith(".safetensors")]
    assert "effective batch" in plan.stdout.lower()
