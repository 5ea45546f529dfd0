"""Data from S3 on real nodes: pictures, their table and all embeddings in buckets, keys in a Secret."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from oarlock_local.s3 import S3Server, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oarlock_local.cluster import Cluster
    from tests.e2e.jobs import Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]

CACHED = {
    "textEmbeds": {"s3": {"bucket": "embeds", "prefix": "text/"}},
    "imageEmbeds": {"s3": {"bucket": "embeds", "prefix": "latents/"}},
    "compression": "Zstd",
}


@pytest.fixture(scope="module")
def service(local_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with serving(
        tmp_path_factory.mktemp("s3"), buckets=["photos", "embeds"], address=local_cluster.host_address
    ) as server:
        local_cluster.kubectl(
            "create", "secret", "generic", "r2",
            f"--from-literal=AWS_ACCESS_KEY_ID={server.access_key_id}",
            f"--from-literal=AWS_SECRET_ACCESS_KEY={server.secret_access_key}",
        )  # fmt: skip
        yield server


def client(server: S3Server) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=server.region,
        aws_access_key_id=server.access_key_id,
        aws_secret_access_key=server.secret_access_key,
    )


def upload_photographs(jobs: Jobs, server: S3Server) -> int:
    """The demo's photographs below photos/set/, and a table of them beside."""
    s3, rows = client(server), []
    for path in sorted((jobs.output / "data/photos").glob("*.png")):
        body = path.read_bytes()
        s3.put_object(Bucket="photos", Key=f"set/{path.name}", Body=body)
        width, height = Image.open(io.BytesIO(body)).size
        rows.append(
            {"filename": path.name, "width": width, "height": height, "caption": path.with_suffix(".txt").read_text()}
        )
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    s3.put_object(Bucket="photos", Key="table.parquet", Body=sink.getvalue())
    return len(rows)


def training(server: S3Server, *, keys_in: str = "r2", **data: Any) -> dict[str, Any]:
    dataset = {
        "name": "photos",
        "source": {"s3": {"bucket": "photos", "prefix": "set/"}},
        "metadata": {"parquet": {"location": {"s3": {"bucket": "photos", "prefix": "table.parquet"}}}},
        "captions": {"strategy": "Parquet"},
    }
    connection = {"name": "default", "endpoint": server.endpoint, "region": server.region}
    return {
        "s3Connections": [{**connection, "credentialsSecretRef": {"name": keys_in}}],
        "data": {"datasets": [dataset], **CACHED, **data},
    }


@pytest.mark.smoke("reads and writes buckets")
def test_a_job_encodes_into_a_bucket_and_another_trains_from_it_on_one_node_without_a_service(
    jobs: Jobs, service: S3Server
) -> None:
    upload_photographs(jobs, service)
    once = {"maxInfrastructureRestarts": 0, "maxApplicationRestarts": 0}
    jobs.apply("encode", nodes=1, training={**training(service), "task": "Preprocess"}, recovery=once)
    encoded = jobs.wait_for_end("encode")
    assert (encoded["phase"], encoded["attempt"]) == ("Succeeded", 1), encoded["message"]
    assert encoded["output"]["dataManifest"] == "/output/encode/reports/data.json"
    assert (jobs.output / "encode/reports/data.json").is_file()
    keys = [one["Key"] for one in client(service).list_objects_v2(Bucket="embeds")["Contents"]]
    assert any(key.startswith("text/shard-") for key in keys), keys
    assert any(key.startswith("latents/shard-") for key in keys), keys

    jobs.apply("cached", nodes=1, steps=6, every=3, training=training(service, onMissingEmbeds="Fail"))
    trained = jobs.wait_for_end("cached")
    assert (trained["phase"], trained["attempt"]) == ("Succeeded", 1), trained["message"]
    assert sorted(step for _, step in jobs.losses("cached")) == list(range(1, 7))
    after = [one["Key"] for one in client(service).list_objects_v2(Bucket="embeds")["Contents"]]
    assert after == keys, "nothing was encoded twice"
    assert "service/cached" not in jobs.cluster.kubectl("get", "services", "-o", "name").split()


def test_wrong_keys_end_the_job_with_the_name_of_what_to_correct(jobs: Jobs, service: S3Server) -> None:
    jobs.cluster.kubectl(
        "create", "secret", "generic", "wrong",
        "--from-literal=AWS_ACCESS_KEY_ID=nobody", "--from-literal=AWS_SECRET_ACCESS_KEY=nothing",
    )  # fmt: skip
    jobs.apply("wrong-keys", nodes=1, gpusPerNode=1, training=training(service, keys_in="wrong"))
    status = jobs.wait_for_end("wrong-keys")
    assert (status["phase"], status["reason"], status["attempt"]) == ("Failed", "ConfigurationError", 1), status
    assert "wrong" in status["message"], status["message"]
    assert "nothing" not in str(status), "no secret is repeated"
