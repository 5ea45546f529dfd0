from __future__ import annotations

import json

import pytest
import yaml
from ended import Oarlock
from fake_api import JOBS, FakeApi

EVIL = "a\x1b]0;x\x07\x9b2J\u202eb\x7f"


def test_what_others_wrote_reaches_a_terminal_without_control_characters(api: FakeApi, oarlock: Oarlock) -> None:
    fault = {"time": "2026-01-01T00:00:00Z", "class": "GPU", "nodeName": EVIL}
    api.add_job("flux", status={"phase": "Running", "reason": EVIL, "message": EVIL, "lastFault": fault})
    api.refusals[f"{JOBS.format('default')}/other"] = (422, EVIL)
    for arguments in (["ls", "-o", "wide"], ["get", "flux"], ["faults", "flux"], ["get", "other"]):
        ended = oarlock(*arguments)
        said = ended.out + ended.err
        assert "\\x1b]0;x\\x07\\x9b2J\\u202eb\\x7f" in said, arguments
        assert not set(EVIL) - set("a]0;x2Jb") & set(said)


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("jsonl", json.loads), ("yaml", yaml.safe_load)])
def test_json_and_yaml_mean_the_same_without_them(api: FakeApi, oarlock: Oarlock, output: str, read: object) -> None:
    assert callable(read)
    api.add_job("flux", status={"phase": "Running", "message": EVIL})
    out = oarlock("ls", "-o", output).out
    assert not set(EVIL) - set("a]0;x2Jb") & set(out)
    found = read(out)
    assert (found if output == "jsonl" else found["items"][0])["message"] == EVIL
