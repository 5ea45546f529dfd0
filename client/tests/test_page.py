from __future__ import annotations

import json
from typing import Any

import pytest
from ended import Oarlock
from fake_api import FakeApi

from oarlock.cli import page
from oarlock.exit_codes import ExitCode

KINDS = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None)}


def test_the_committed_page_and_schema_are_those_of_the_code() -> None:
    assert page.main(["--check"]) == 0


def test_the_page_has_every_exit_code_that_the_command_lists(oarlock: Oarlock) -> None:
    listed = oarlock("exit-codes").out
    for code in ExitCode:
        assert f"| {int(code)} | {code.meaning} |" in page.PAGE.read_text()
        assert f"{int(code):<4}  {code.meaning}" in listed


@pytest.mark.parametrize(
    ("verb", "kind"), [("ls", "JobList"), ("events", "EventList"), ("faults", "FaultList"), ("nodes", "NodeList")]
)
def test_what_is_printed_as_json_keeps_to_the_schema(api: FakeApi, oarlock: Oarlock, verb: str, kind: str) -> None:
    strike = {"gpuUUID": "GPU-1", "nodeName": "gpu-1", "count": 1}
    api.add_job("flux", status={"phase": "Running", "progress": {"step": 1, "loss": 0.5}, "strikes": [strike]})
    about = {"kind": "TrainingJob", "name": "flux"}
    api.objects["/api/v1/namespaces/default/events/1"] = {"metadata": {}, "involvedObject": about, "reason": "Started"}
    node = {"metadata": {"name": "gpu-1"}, "spec": {}, "status": {"capacity": {"nvidia.com/gpu": "8"}}}
    api.objects["/api/v1/nodes/gpu-1"] = node
    schema = json.loads(page.SCHEMA.read_text())
    told = json.loads(oarlock(verb, *(["flux"] if verb in {"events", "faults"} else []), "-o", "json").out)
    wanted = next(one["properties"] for one in schema["oneOf"] if one["properties"]["kind"]["const"] == kind)
    assert told["version"] == wanted["version"]["const"]
    assert told["kind"] == kind
    row: dict[str, Any] = schema["$defs"][wanted["items"]["items"]["$ref"].rpartition("/")[2]]
    assert told["items"]
    for item in told["items"]:
        assert set(row["required"]) <= item.keys() == row["properties"].keys()
        for name, value in item.items():
            types = row["properties"][name]["type"]
            kinds = [KINDS[each] for each in ([types] if isinstance(types, str) else types)]
            assert any(isinstance(value, each) for each in kinds), (name, value)
