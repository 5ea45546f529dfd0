"""What an S3 service's refusals and failures mean: whether asking again can help, and what people have to do otherwise."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from botocore import exceptions
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from oarlock_trainer.runtime.errors import ConfigurationError, StorageError, TrainingEnd

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_trainer.storage.service import Service

_MISSING = frozenset({"NoSuchKey", "404"})
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
_WRONG_KEYS = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "XAdminUserNotFound"})
_WRONG_REGION = frozenset({"AuthorizationHeaderMalformed", "PermanentRedirect", "301"})
_PASSING = frozenset({"SlowDown", "RequestTimeout", "Throttling", "ThrottlingException", "RequestLimitExceeded"})
"""Some services say these with a 4xx."""
_CONNECTION = (
    exceptions.ConnectionError,
    exceptions.HTTPClientError,
    exceptions.IncompleteReadError,
    exceptions.CredentialRetrievalError,
    ResponseParserError,
)
S3_ERRORS = (BotoCoreError, ClientError, ResponseParserError)
"""All that a request can raise."""


class TornError(BotoCoreError):  # type: ignore[misc]  # botocore has no types
    """An answer that is whole by its own account and yet not what was asked for."""

    fmt = "asked for {asked}, and got {got} bytes as {told}"


def code_of(error: Exception) -> str:
    """The service's own word for an error; a bare number where the answer had no body; empty for others."""
    return str(_answer(error).get("Error", {}).get("Code", ""))


def status_of(error: Exception) -> int:
    """The HTTP status, 0 where none came."""
    return int(_answer(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def is_passing(error: Exception) -> bool:
    """Tell whether the same request may well succeed later."""
    if isinstance(error, ClientError):
        status = status_of(error)
        return (status >= 500 and status != 501) or status in {408, 429} or code_of(error) in _PASSING
    return isinstance(error, (*_CONNECTION, TornError)) and not _distrusted(error)


def explained(error: Exception, *, doing: str, name: str, bucket: str, service: Service, field: str) -> Exception:
    """The error of ours that says what to do. `doing` something with object `name` in a bucket that `field` names."""
    if code_of(error) in _MISSING:
        return FileNotFoundError(errno.ENOENT, f"no such object at {service.where}", f"s3://{bucket}/{name}")
    what = f"{doing} {name}".rstrip()
    kind, remedy = next((kind, remedy) for applies, kind, remedy in _REMEDIES if applies(error))
    return kind(
        f"{field}: {what} in bucket {bucket} at {service.where}: {error}. "
        + remedy.format(
            field=field,
            connection=f"training.s3Connections[{service.connection}]",
            keys=f"the Secret {service.secret}" if service.keys else "the pod's own credentials",
        )
    )


def _answer(error: Exception) -> dict[str, Any]:
    return error.response if isinstance(error, ClientError) else {}


def _distrusted(error: Exception) -> bool:
    return isinstance(error, exceptions.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error)


_REMEDIES: tuple[tuple[Callable[[Exception], bool], type[TrainingEnd], str], ...] = (
    (
        lambda error: code_of(error) == "NoSuchBucket",
        ConfigurationError,
        "Create the bucket, or correct {field}, or the endpoint of {connection}",
    ),
    (
        lambda error: code_of(error) in _EXPIRED,
        StorageError,
        "Renew {keys} and restart the job: pods read it as they start",
    ),
    (
        lambda error: code_of(error) in _WRONG_KEYS,
        ConfigurationError,
        "Correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in {keys}, or the endpoint of {connection}",
    ),
    (
        lambda error: code_of(error) in _WRONG_REGION,
        ConfigurationError,
        "Set the region of {connection} to the bucket's",
    ),
    (
        lambda error: code_of(error) == "RequestTimeTooSkewed",
        StorageError,
        "This node's clock is wrong: see to its time service",
    ),
    (
        lambda error: status_of(error) in {401, 403},
        ConfigurationError,
        (
            "Let {keys} list the bucket (s3:ListBucket; without it, what is missing is forbidden too), read objects "
            "(s3:GetObject) and, where the job writes, write them (s3:PutObject, s3:DeleteObject, s3:AbortMultipartUpload)"
        ),
    ),
    (
        lambda error: isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError),
        ConfigurationError,
        (
            "Name a Secret in credentialsSecretRef of {connection}, or give the pods' service account a role "
            "(spec.pod.serviceAccountName)"
        ),
    ),
    (
        _distrusted,
        ConfigurationError,
        "Give the pods the certificate of the authority that signed the service's (AWS_CA_BUNDLE in spec.pod.env)",
    ),
    (
        lambda error: isinstance(error, BotoCoreError) and not is_passing(error),
        ConfigurationError,
        "Correct {field} or {connection}",
    ),
    (lambda _: True, StorageError, "Trying again did not help: see to the service, and to the network to it"),
)
"""What to do about an error: the first that applies."""
