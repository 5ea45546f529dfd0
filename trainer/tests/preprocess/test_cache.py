"""Embeddings in a bucket are read over the network once where the job gives a cache room."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.contract.job_file import JobFile
from oarlock_api.training import Training
from oarlock_local.s3 import serving
from oarlock_trainer.preprocess.stores import open_stores, read_through
from oarlock_trainer.runtime.job import Job, RankInfo
from oarlock_trainer.storage.credentials import Keys
from oarlock_trainer.storage.locations import Locations

if TYPE_CHECKING:
    from oarlock_trainer.storage.files import Files

EMBEDS = {"textEmbeds": {"path": "/embeds/text"}, "imageEmbeds": {"s3": {"bucket": "embeds", "prefix": "latents"}}}


def job(endpoint: str, **tuning: Any) -> Job:
    training = Training.model_validate(
        {
            "model": {"family": "Flux1", "path": "/models/flux"},
            "steps": 1,
            "s3Connections": [{"name": "default", "endpoint": endpoint, "credentialsSecretRef": {"name": "r2"}}],
            "data": {**EMBEDS, "datasets": [{"name": "photos", "source": {"path": "/data"}}], "tuning": tuning},
        }
    )
    file = JobFile(
        job="flux", namespace="default", job_uid="u", attempt=1, nodes=1, gpus_per_node=2, output_directory="/output",
        training={},
    )  # fmt: skip
    rank_info = RankInfo(rank=0, local_rank=0, world_size=2, local_world_size=2)
    return Job(file=file, training=training, rank_info=rank_info, simulate_gpus=True)


def through(given: Job, keys: Keys) -> tuple[Files, Files]:
    stores = open_stores(given, Locations(connections=given.training.s3_connections, credentials={"default": keys}))
    latents, texts = read_through(given, stores.all)
    return latents, texts


def test_what_a_bucket_gave_once_comes_from_the_disk_and_folders_have_no_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    with serving(tmp_path / "s3", buckets=["embeds"]) as server:
        keys = Keys(server.access_key_id, server.secret_access_key, "")
        shard = tmp_path / "s3/embeds/latents/shard-1.bin"
        plain, _ = through(job(server.endpoint), keys)
        cached, folder = through(job(server.endpoint, s3Cache="1Gi"), keys)
        plain.write("shard-1.bin", b"0123456789")
        assert cached.read("shard-1.bin", 2, 3) == b"234"
        # The object's bytes change without a word from the service: only who asks it again can know.
        shard.write_bytes(b"abcdefghij")
        assert cached.read("shard-1.bin", 2, 3) == b"234"
        assert plain.read("shard-1.bin", 2, 3) == b"cde"
    assert folder.where == "/embeds/text"
    assert sum(path.is_file() for path in (tmp_path / "tmp/oarlock-cache").rglob("*")) == 1
