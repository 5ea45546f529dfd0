"""A GPU of which its driver says that its processes are lost and it is not, as agents tell it onwards. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oarlock_api.contract.wire import integer

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,48}")
"""Names of GPUs, and of probes: a UUID has 40 characters, and nothing in them has to be escaped anywhere."""
_MOST_GPUS = 1024
_HIGHEST_XID = 9999


@dataclass(frozen=True, slots=True, kw_only=True)
class StruckGpu:
    """`index` on its node, `uuid` and `serial` as it is known by elsewhere.

    `probe` heard the driver say so, with the error number `xid` where it named one.
    """

    index: int
    uuid: str
    serial: str = ""
    xid: int | None = None
    probe: str = "xid"

    def to_fields(self) -> dict[str, Any]:
        """As JSON writes it; what is empty is left out."""
        fields = {"index": self.index, "uuid": self.uuid, "serial": self.serial, "xid": self.xid, "probe": self.probe}
        return {name: value for name, value in fields.items() if value not in ("", None)}


def parse_struck_gpu(raw: object) -> StruckGpu | None:
    """Read what JSON says; None where any of it makes no sense, for a strike is counted by these names."""
    if not isinstance(raw, Mapping):
        return None
    index, xid = integer(raw.get("index")), integer(raw.get("xid"))
    uuid, serial, probe = (raw.get(name) for name in ("uuid", "serial", "probe"))
    if index is None or not 0 <= index < _MOST_GPUS or (xid is None) != (raw.get("xid") is None):
        return None
    if xid is not None and not 0 < xid <= _HIGHEST_XID:
        return None
    if not (_is_name(uuid) and _is_name(probe) and (serial is None or _is_name(serial))):
        return None
    return StruckGpu(index=index, uuid=str(uuid), serial=str(serial or ""), xid=xid, probe=str(probe))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None
