"""The part of the status that says how training goes and what it made."""

from typing import Annotated

from pydantic import Field

from oarlock_api.group import StatusGroup
from oarlock_api.primitives import Time

ShortText = Annotated[str, Field(max_length=253)]
MAX_CURVE = 64
Path = Annotated[str, Field(max_length=2048)]


class Progress(StatusGroup):
    """How far training is; written at most every ten seconds. A value that is not finite is absent."""

    step: int | None = Field(default=None, description="Optimizer steps done.")
    total_steps: int | None = Field(default=None, description="Optimizer steps in all.")
    epoch: float | None = Field(default=None, description="Passes over the data.")
    loss: float | None = Field(default=None, description="Loss, averaged over the ranks.")
    learning_rate: float | None = Field(default=None, description="Learning rate.")
    seconds_per_step: float | None = Field(default=None, description="Seconds per optimizer step.")
    images_per_second: float | None = Field(default=None, description="Samples per second of the whole gang.")
    mfu_percent: float | None = Field(default=None, description="Model FLOPs utilization in percent.")
    eta_seconds: int | None = Field(
        default=None, description="Seconds until the last step, by the mean pace of the last steps."
    )
    silent_seconds: int | None = Field(
        default=None, description="Seconds without a sign of progress, once half of hangAfterSeconds is over."
    )
    hang_after_seconds: int | None = Field(
        default=None, description="Beside silentSeconds: after how many the ranks count as hung."
    )
    update_time: Time | None = Field(default=None, description="When this was read from rank 0.")


class CurvePoint(StatusGroup):
    """One point of the curve. A value that is not finite is absent."""

    step: int = Field(description="Optimizer steps done.")
    loss: float | None = Field(default=None, description="Loss, averaged over the ranks.")
    seconds_per_step: float | None = Field(default=None, description="Seconds per optimizer step.")


class LatestCheckpoint(StatusGroup):
    """The newest valid checkpoint."""

    step: int = Field(description="Optimizer step.")
    path: Path = Field(description="Absolute path in the pod.")
    relative_path: Path | None = Field(default=None, description="Path below the root of the output storage.")
    save_time: Time | None = Field(default=None, description="When it became valid.")


class StateInMemory(StatusGroup):
    """The newest state of training that all nodes have in memory."""

    step: int = Field(description="Optimizer step.")
    save_time: Time | None = Field(default=None, description="When training was there.")
    copied: bool | None = Field(
        default=None,
        description="Whether each node's part of it is on the next node, too: the loss of a node costs no more than that "
        "of its ranks. Absent where nodes keep no copies.",
    )


class OutputStatus(StatusGroup):
    """What the job made; set before Succeeded."""

    path: Path | None = Field(default=None, description="The output directory, absolute in the pod.")
    relative_path: Path | None = Field(default=None, description="Path below the root of the output storage.")
    model: Path | None = Field(default=None, description="The finished model, in the layout of diffusers.")
    data_manifest: Path | None = Field(default=None, description="List of the cached embeddings.")
    metrics: Annotated[dict[ShortText, float], Field(max_length=64)] = Field(
        default={}, description="Final figures, such as loss or validation scores."
    )
