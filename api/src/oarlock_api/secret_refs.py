"""References to Secrets: a secret value never stands in a TrainingJob, only the name of the Secret that holds it."""

from typing import Annotated

from pydantic import Field

from oarlock_api.group import Group
from oarlock_api.primitives import ObjectName

SecretKey = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]


class SecretRef(Group):
    """A Secret of the job's namespace, as a whole."""

    name: ObjectName = Field(description="Name of a Secret in the job's namespace.")


class SecretKeyRef(Group):
    """One key of a Secret of the job's namespace."""

    name: ObjectName = Field(description="Name of a Secret in the job's namespace.")
    key: SecretKey = Field(description="Key in that Secret.")
