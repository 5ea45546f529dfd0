"""docs/reference/gpu-faults.md: what each XID, event, probe and text calls for, from the tables that decide it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from oarlock_api.generated import REPOSITORY, write_or_check
from oarlock_trainer.health import error_text, events, xids
from oarlock_trainer.health.error_text import ErrorSource
from oarlock_trainer.health.probes import PROBES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

PAGE: Path = REPOSITORY / "docs/reference/gpu-faults.md"
_INTRODUCTION = """\
# What speaks against a GPU, and what follows

Made by `make generate` from the trainer's tables. How it all works together: [when a GPU breaks](../gpu-faults.md).

| verdict | exit code | gang | node |
| --- | --- | --- | --- |
| Ignore | - | goes on | - |
| Hold | - | saves now and goes on | - |
| RestartProcess | 81 | starts again | blamed for [twice in 24 h](../gpu-faults.md#twice-is-a-pattern) |
| ReplaceNode | 80 | starts elsewhere | avoided; cordoned as far as the brakes allow |

The driver's own recovery action (NVML field 230, from R570 on) outranks the tables: where it asks for one, the verdict is
ReplaceNode; where it asks for none, an error that is often an echo of another one restarts the processes only.
"""
_TOLD = {
    ErrorSource.GPU: "a GPU's context is lost: RestartProcess, unless the driver says more within seconds",
    ErrorSource.PEER: "the rank is a victim (82)",
    ErrorSource.APPLICATION: "the program's own failure, though it may sound like one of the others",
}


def page() -> str:
    """The page as Markdown."""
    rows = sorted(xids.XIDS.items())
    return "\n".join(
        [
            _INTRODUCTION,
            "## XIDs",
            "",
            *_table(
                ("XID", "meaning", "verdict"),
                (
                    (str(number), xid.words + (" (often an echo)" if xid.echo else ""), xid.verdict)
                    for number, xid in rows
                ),
            ),
            f"| any other | {xids.UNKNOWN.words} | {xids.UNKNOWN.verdict} |",
            "",
            "## Other events of the driver",
            "",
            *_table(("the GPU", "verdict"), ((words, verdict) for verdict, words in events.MEANING.values() if words)),
            "",
            "## Probes",
            "What a driver or container does not let us ask stands in /status as not supported.",
            "",
            *_table(
                ("probe", "every", "what it is about"),
                ((probe.name, f"{probe.every:g} s", probe.about) for probe in PROBES),
            ),
            "",
            "## What programs say",
            "In a rank's last words the first row that fits decides; where it left none, the last line that fits, at the",
            "end of the node's standard error. No node is taken away for a text.",
            "",
            *_table(
                ("text (regular expression)", "taken for"),
                ((f"`{pattern.replace('|', '&#124;')}`", _TOLD[told]) for told, pattern in error_text.TABLE),
            ),
            "",
        ]
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


if __name__ == "__main__":
    sys.exit(write_or_check(module="oarlock_trainer.health.reference", path=PAGE, content=page()))
