"""Other projects' Go modules as a folder to read: their own definitions judge what we write, so that no copy of them does.

The Go command fetches a module once into its own cache. Version and checksum are pinned here, the checksum as in a go.sum.
"""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from oarlock_local.errors import LocalError

_SECONDS = 80
"""A test that needs three of them has five minutes."""


class SourceMissing(LocalError):  # noqa: N818
    """A module cannot be had here; the message says why."""


@dataclass(frozen=True, slots=True)
class Source:
    """One version of a Go module."""

    module: str
    version: str
    checksum: str

    def fetch(self) -> Path:
        """The module's folder, read-only.

        Raises SourceMissing where it cannot be had; and LocalError where it is not what was pinned, which is no reason to go
        on without it.
        """
        if shutil.which("go") is None:
            raise SourceMissing(f"{self.module} comes as a Go module: install Go")
        command = ["go", "mod", "download", "-json", f"{self.module}@{self.version}"]
        try:
            # Outside any module: one's own go.mod would have to require it.
            got = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, timeout=_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise SourceMissing(f"{' '.join(command)} does not end within {_SECONDS} s") from error
        if got.returncode != 0:
            raise SourceMissing(f"{' '.join(command)}: {got.stdout}{got.stderr}")
        told = json.loads(got.stdout)
        if told["Sum"] != self.checksum:
            raise LocalError(f"{self.module}@{self.version} is {told['Sum']}, but {self.checksum} was pinned")
        return Path(told["Dir"])


ARGO_WORKFLOWS = Source(
    "github.com/argoproj/argo-workflows/v3", "v3.7.4", "h1:oA/DxaSsjb6fMYaygf7JVQgnsF+ZzlfUPy5kIfLsCic="
)
COSCHEDULING = Source("sigs.k8s.io/scheduler-plugins", "v0.33.5", "h1:9u4QAYbuoxa59aStrJKP4Bii2EQrZmGPN2tzvfs2gL0=")
GATEWAY_API = Source("sigs.k8s.io/gateway-api", "v1.6.0", "h1:735YBRj5NXFrOGX0GoSjwzUIzbz8kiEOfADsqHFmHgE=")
JOBSET = Source("sigs.k8s.io/jobset", "v0.12.0", "h1:YYPuV0px8Ongq/RXmJg6V0w2UC67aiR+rCMD06vhQQQ=")
KUEUE = Source("sigs.k8s.io/kueue", "v0.19.2", "h1:mPNzr37u0nwI7ikST5QQl5gg6EgtYOAvC9ZbTgywdN8=")
PROMETHEUS_OPERATOR = Source(
    "github.com/prometheus-operator/prometheus-operator", "v0.85.0", "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
)
VOLCANO = Source("volcano.sh/volcano", "v1.14.1", "h1:9eLs47iZeLgey6EcA1rHwVkU7HoBNm3UVpJZ4uhFJ7c=")
