"""Paths and buckets: where files lie for a pod, and by which Secret it may read them."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from oarlock_import.options import Options
    from oarlock_import.report import Report

_CREDENTIALS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


def label(text: str, *, longest: int = 63) -> str:
    """A Kubernetes name as near to `text` as it can be; "x" where nothing of it can be kept."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:longest].strip("-") or "x"


@dataclass(slots=True)
class Places:
    """Turns SimpleTuner's paths into a job's locations, and collects the S3 connections on the way."""

    job: str
    working_directory: str
    """Where relative paths begin in the pod."""
    output: str
    """Where the output is mounted."""
    report: Report
    connections: list[dict[str, Any]] = field(default_factory=list)
    _known: list[tuple[Any, ...]] = field(default_factory=list)

    def path(self, written: str, *, is_made: bool = False) -> str:
        """The absolute path in the pod; what lies outside the output has to be mounted. `is_made`: by the run, if absent."""
        written = posixpath.expanduser(written)
        windows = re.match(r"[A-Za-z]:[\\/]+", written)
        within = written[windows.end() :].replace("\\", "/") if windows else written
        found = posixpath.normpath(posixpath.join(self.working_directory, within))
        if posixpath.commonpath((found, self.output)) != self.output:
            self.report.task(f"mount {found} into the pods (pod.volumes, pod.volumeMounts), the same on every node")
        elif windows and not is_made:
            self.report.task(f"{written} is a path of Windows: put it at {found}")
        elif not written.startswith("/") and not is_made:
            self.report.task(f"{written} is a relative path: put it at {found}, or pass --working-directory")
        return found

    def bucket(self, options: Options, prefix: str | None) -> dict[str, Any] | None:
        """An S3 location by the aws_* keys of an entry; None where they do not make one, which is reported."""
        bucket = options.value("aws_bucket_name")
        if bucket is None:
            options.refused("aws_bucket_name", "is missing")
            return None
        options.mapped("aws_bucket_name", words=f"-> bucket {bucket}")
        location = {"connection": self._connection(options), "bucket": bucket}
        return {"s3": location | ({"prefix": prefix.lstrip("/")} if prefix and prefix.strip("/") else {})}

    def _connection(self, options: Options) -> str:
        """Name of the connection; entries with the same service and the same credentials share one."""
        endpoint, region = options.value("aws_endpoint_url"), options.value("aws_region_name")
        if endpoint and (urlsplit(endpoint).username or urlsplit(endpoint).password):
            options.refused("aws_endpoint_url", "holds credentials; take them out, a Secret has them")
            endpoint = None
        secrets = tuple(options.raw(key) for key in _CREDENTIALS)
        wanted = (endpoint, region, *secrets)
        if wanted not in self._known:
            self._known.append(wanted)
            self.connections.append(self._entry(endpoint, region, has_credentials=any(secrets)))
        entry = self.connections[self._known.index(wanted)]
        name: str = entry["name"]
        options.mapped("aws_endpoint_url", words=f"-> training.s3Connections[{name}].endpoint")
        options.mapped("aws_region_name", words=f"-> training.s3Connections[{name}].region: {region}")
        for key in _CREDENTIALS:
            if key in options:
                options.mapped(key, words=f"by the Secret {entry['credentialsSecretRef']['name']}, not written down")
        return name

    def _entry(self, endpoint: str | None, region: str, *, has_credentials: bool) -> dict[str, Any]:
        number = len(self.connections) + 1
        name = "default" if number == 1 else f"s3-{number}"
        entry: dict[str, Any] = {"name": name} | ({"endpoint": endpoint} if endpoint else {}) | {"region": region}
        if not has_credentials:
            return entry
        secret = f"{self.job}-s3" if number == 1 else f"{self.job}-s3-{number}"
        self.report.task(
            f"kubectl create secret generic {secret} --from-literal=AWS_ACCESS_KEY_ID=... "
            f"--from-literal=AWS_SECRET_ACCESS_KEY=...   # for {endpoint or 'AWS'}"
        )
        return entry | {"credentialsSecretRef": {"name": secret}}
