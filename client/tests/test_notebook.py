from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_api import JOBS, FakeApi

NOTEBOOK = Path(__file__).parents[2] / "examples/client.ipynb"


def test_the_notebook_of_the_examples_runs_from_its_first_cell_to_its_last(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{JOBS.format('default')}/notebook"
    answer = api.answer

    def trained(method: str, asked: str, body: Any) -> tuple[int, Any]:
        if method == "PATCH":
            progress = {"step": 20, "totalSteps": 20, "loss": 0.5}
            output = {"model": "/output/notebook/model"}
            body = {**body, "status": {"phase": "Succeeded", "attempt": 1, "progress": progress, "output": output}}
        return answer(method, asked, body)

    monkeypatch.setattr(api, "answer", trained)
    monkeypatch.chdir(NOTEBOOK.parent)
    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)  # noqa: S102 - as Jupyter does
    assert names["row"].step == 20
    assert path not in api.objects
