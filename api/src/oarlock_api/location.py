"""Places where files lie: a path in the pod, or a prefix of an S3 bucket."""

from typing import Annotated, ClassVar

from pydantic import Field

from oarlock_api.group import Group
from oarlock_api.primitives import AbsolutePath, Label, Text, Url, Word
from oarlock_api.rules import Rule, exactly_one
from oarlock_api.secret_refs import SecretRef


class S3Connection(Group):
    """An S3-compatible service and the credentials for it."""

    name: Label = Field(
        default="default",
        description="Name that s3 locations refer to. A location without `connection` uses the one named default.",
    )
    endpoint: Url | None = Field(
        default=None,
        description="URL of the service; absent = AWS. SimpleTuner: aws_endpoint_url.",
    )
    region: Word = Field(default="auto", description="Region. SimpleTuner: aws_region_name.")
    credentials_secret_ref: SecretRef | None = Field(
        default=None,
        description="Secret with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, if needed, AWS_SESSION_TOKEN; absent = "
        "the standard credential chain (service account, instance role). SimpleTuner: aws_access_key_id, "
        "aws_secret_access_key.",
    )


class S3Location(Group):
    """A prefix of a bucket."""

    connection: Label = Field(default="default", description="Name of an entry of training.s3Connections.")
    bucket: Annotated[str, Field(min_length=3, max_length=63, pattern=r"^[a-z0-9][-a-z0-9._]*$")] = Field(
        description="Bucket. SimpleTuner: aws_bucket_name.",
    )
    prefix: Text | None = Field(
        default=None,
        description="Key or prefix in the bucket; absent = all of it. SimpleTuner: aws_data_prefix.",
    )


class Location(Group):
    """A place for files: a path in the pod, or a prefix of an S3 bucket."""

    admission: ClassVar[tuple[Rule, ...]] = (
        exactly_one("path", "s3", message="say where: set exactly one of path and s3"),
    )

    path: AbsolutePath | None = Field(
        default=None,
        description="Absolute path in the pod: below output.mountPath, or in a volume of pod.volumes.",
    )
    s3: S3Location | None = Field(default=None, description="A prefix of an S3 or R2 bucket.")
