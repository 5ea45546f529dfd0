"""A page taken apart, and what pages are made of: a job's facts, and an output with pictures."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from situations import HUNG, facts, line, output

from oarlock.facts import Facts

PNG = b"\x89PNG\r\n\x1a\n"


def validation(
    output: Path, *steps: int, size: int = 100, names: tuple[str, ...] = ("boat", "a fox"), uid: str = "u1"
) -> None:
    """Pictures of these steps, each of so many bytes, with the index that the trainer writes."""
    folder = output / "validation"
    entries = []
    for step in steps:
        (folder / f"step-{step}").mkdir(parents=True, exist_ok=True)
        (folder / f"step-{step}/grid.png").write_bytes(PNG + b"grid")
        for name in names:
            file = f"step-{step}/{name}-64x64.png"
            (folder / file).write_bytes(PNG.ljust(size, b"."))
            entry = {"name": name, "prompt": f"{name} on a lake", "width": 64, "height": 64, "seed": 42, "step": step}
            entries.append({**entry, "file": file, "jobUid": uid})
    (folder / "index.json").write_text(json.dumps({"pictures": entries}))


class Page(HTMLParser):
    """Tags with their attributes, the text within each kind of tag, and whether every tag was closed in its turn."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "input", "img", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self) -> str:
        return " ".join(one for tag, texts in self.texts.items() if tag not in ("style", "script") for one in texts)


def hung(said: str = HUNG, **more: Any) -> Facts:
    """A gang of two nodes that hung at step 7 of attempt 1, and trains on in attempt 2."""
    rows = [
        {"attempt": attempt, "step": step, "loss": 1 / step, "secondsPerStep": 10.0, "total": 40}
        for attempt, steps in ((1, range(1, 8)), (2, range(5, 21)))
        for step in steps
    ]
    verdict = {"code": 83, "detectedAt": "2026-11-23T10:02:20Z"}
    return facts(
        None,
        output=output(
            line("AttemptStarted", rank=0, node="node-1", data={"nodes": 2, "gpusPerNode": 8}),
            line("GangComplete", rank=0, node="node-1", data={"nodes": {"0": "node-1", "1": "node-2"}}),
            line("Stage", time="10:00:20", rank=0, node="node-1", data={"name": "FirstStep", "seconds": 20.0}),
            line("Fault", time="10:02:20", rank=1, node="node-2", reason="Hang", message=said, data=verdict),
            line(
                "AttemptStarted", attempt=2, time="10:03:00", rank=0, node="node-1", data={"nodes": 2, "gpusPerNode": 8}
            ),
            line("Resumed", attempt=2, time="10:03:10", rank=0, node="node-1", data={"step": 4}),
            line(
                "Stage", attempt=2, time="10:03:30", rank=0, node="node-1", data={"name": "FirstStep", "seconds": 30.0}
            ),
            metrics=tuple(rows),
        ),
        **more,
    )
