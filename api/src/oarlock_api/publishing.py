"""Where a run reports its figures, and where the finished model goes."""

from enum import StrEnum
from typing import ClassVar

from pydantic import Field, StrictBool

from oarlock_api.group import Group
from oarlock_api.location import S3Location
from oarlock_api.primitives import Label, Text, Url
from oarlock_api.rules import Rule, exactly_one, only_when
from oarlock_api.secret_refs import SecretKeyRef, SecretRef
from oarlock_api.weights import RepositoryName


class TrackerType(StrEnum):
    """Kinds of trackers."""

    TENSORBOARD = "TensorBoard"
    WANDB = "Wandb"
    MLFLOW = "MLflow"


class Tracker(Group):
    """A tracker of experiments."""

    admission: ClassVar[tuple[Rule, ...]] = tuple(
        only_when(
            field,
            setting="type",
            allowed=("Wandb", "MLflow"),
            message="a tracker of type TensorBoard writes files and asks no server: remove url and secretRef, or set type",
        )
        for field in ("url", "secret_ref")
    )

    name: Label = Field(description="Name of this entry.")
    type: TrackerType = Field(
        default=TrackerType.TENSORBOARD,
        description="TensorBoard writes files below <output>/tensorboard. SimpleTuner: report_to.",
    )
    project: Text | None = Field(
        default=None,
        description="Project or experiment of W&B and MLflow; absent = oarlock. SimpleTuner: tracker_project_name.",
    )
    run: Text | None = Field(
        default=None, description="Name of the run; absent = the job's name. SimpleTuner: tracker_run_name."
    )
    url: Url | None = Field(
        default=None, description="Address of the server; absent = W&B's own, or MLFLOW_TRACKING_URI."
    )
    secret_ref: SecretRef | None = Field(
        default=None,
        description="Secret with WANDB_API_KEY (and WANDB_ENTITY), or MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and "
        "MLFLOW_TRACKING_PASSWORD.",
    )


class HubTarget(Group):
    """A repository of a model hub."""

    repo: RepositoryName = Field(description="Repository, such as owner/name. SimpleTuner: hub_model_id.")
    private: StrictBool = Field(default=True, description="Make a new repository private..")
    token_secret_ref: SecretKeyRef = Field(description="Secret with a token that may write.")


class Publication(Group):
    """One place for the finished model."""

    admission: ClassVar[tuple[Rule, ...]] = (
        exactly_one("hub", "s3", message="say where to publish: set exactly one of hub and s3"),
    )

    name: Label = Field(description="Name of this entry.")
    hub: HubTarget | None = Field(default=None, description="A model hub. SimpleTuner: push_to_hub.")
    s3: S3Location | None = Field(default=None, description="A prefix of a bucket. SimpleTuner: publishing_config.")
