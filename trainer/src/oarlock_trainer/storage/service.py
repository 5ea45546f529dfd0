"""An S3 service as a job names it, and the one boto3 client that a process has for it.

Clients are made when they are first needed and never outlive a fork: two processes on one TLS connection would read each
other's answers.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.config import Config

from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from oarlock_trainer.storage.credentials import Keys

_MAKING = threading.Lock()
_POOL_SIZE = 64
"""Connections that are kept where there is no limit: sixteen reads in flight for each of a few readers."""
_CONNECT_SECONDS = 5.0
_METADATA_TRIES = 5
"""An instance's metadata service throttles when all ranks of a node ask at once; botocore alone gives up after one try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Where a service is and who we are there. `endpoint` None = AWS, `keys` None = the standard credential chain.

    `connection` is its name in training.s3Connections and `secret` the Secret that the keys come from: for messages. A
    connection that is silent for `silence_seconds` is given up: services answer within a few, so it is dead. At most
    `pool_size` requests of a process are under way, None = no limit.
    """

    connection: str = "default"
    endpoint: str | None = None
    region: str = "auto"
    keys: Keys | None = None
    secret: str = ""
    pool_size: int | None = None
    silence_seconds: float = 20.0

    @property
    def where(self) -> str:
        """The service, for people and as a part of cache keys."""
        return self.endpoint or "AWS"


def client(service: Service) -> Any:
    """This process's client for a service; safe to use from several threads.

    Raises ConfigurationError for an endpoint or a region that is none.
    """
    try:
        # Else each of the threads that begin together would make one, at 0.1 s of CPU a piece.
        with _MAKING:
            return _client(service, os.getpid())
    except ValueError as error:
        raise ConfigurationError(
            f"training.s3Connections[{service.connection}]: {error}. Set endpoint to the service's address, as "
            "https://s3.example.com, and region to one of its regions"
        ) from error


def turn(service: Service) -> AbstractContextManager[Any]:
    """What a request to a service is to be made within: it waits while as many as may be are under way.

    boto3's own pool is no limit: what it has no room for gets a connection all the same.
    """
    return _turns(service, os.getpid()) if service.pool_size else contextlib.nullcontext()


def take_turn(service: Service, *, wait: bool) -> Callable[[], None] | None:
    """Take a turn, as `turn` does, for a request that ends in another thread: what gives it back.

    None where no turn is free at once and this is not to `wait` for one.
    """
    if service.pool_size is None:
        return _nothing
    turns = _turns(service, os.getpid())
    return turns.release if turns.acquire(blocking=wait) else None


def _nothing() -> None:
    """Without a limit there are no turns."""


@functools.cache
def _turns(service: Service, _process: int) -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(service.pool_size or _POOL_SIZE)


@functools.cache
def _client(service: Service, _process: int) -> Any:
    session = botocore.session.Session()
    session.set_config_variable("metadata_service_num_attempts", _METADATA_TRIES)
    keys = service.keys
    return boto3.Session(botocore_session=session).client(
        "s3",
        endpoint_url=service.endpoint,
        region_name=_region(service),
        aws_access_key_id=keys.access_key_id if keys else None,
        aws_secret_access_key=keys.secret_access_key if keys else None,
        aws_session_token=(keys.session_token or None) if keys else None,
        config=Config(
            # Patience asks again, bodies included and with one deadline for all. Two mechanisms would multiply.
            retries={"total_max_attempts": 1},
            # A service of one's own seldom has a name in the DNS for every bucket.
            s3={"addressing_style": "path" if service.endpoint else "auto"},
            # Checksums as trailers, boto3's default since 1.36, are refused by R2 and older MinIO.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            max_pool_connections=service.pool_size or _POOL_SIZE,
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=service.silence_seconds,
            tcp_keepalive=True,
        ),
    )


def _region(service: Service) -> str | None:
    """What requests are signed for: "auto" is R2's word, and others tell the right one. AWS is asked where a bucket lies.

    None leaves it to AWS_DEFAULT_REGION; without that, botocore follows the service to each bucket's region and
    remembers it.
    """
    return None if service.region == "auto" and service.endpoint is None else service.region
