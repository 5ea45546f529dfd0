from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urlsplit

import pytest

from oarlock_local import patience
from oarlock_local.demo.buttons import Button, buttons
from oarlock_local.errors import ClusterError


def refused() -> str:
    raise ClusterError("no pod of the job runs")


@pytest.fixture
def pressed() -> list[str]:
    return []


@pytest.fixture
def link(pressed: list[str]) -> Iterator[str]:
    def press() -> str:
        pressed.append("gpu")
        return "done: gpu node-2 <i>"

    known = {
        "gpu": Button("Break <it>", lambda: f"strikes node-{len(pressed)} <i>", press),
        "none": Button("Nothing", refused, refused),
    }
    with buttons(known, page="http://127.0.0.1:1/enter?key=k&x=1") as found:
        yield found


def ask(link: str, path: str, method: str = "GET") -> tuple[HTTPResponse, str]:
    address = urlsplit(link)
    connection = HTTPConnection(address.netloc, timeout=patience.SECONDS)
    connection.request(method, path)
    answer = connection.getresponse()
    said = answer.read().decode()
    connection.close()
    return answer, said


def test_a_button_does_its_fault_and_the_page_tells_it(link: str, pressed: list[str]) -> None:
    path = urlsplit(link).path
    answer, said = ask(link, path)
    assert answer.status == 200
    assert "Break &lt;it&gt;" in said
    assert "strikes node-0 &lt;i&gt;" in said
    assert 'action="gpu"' in said
    assert ask(link, f"{path}gpu", "POST")[0].getheader("Location") == path
    assert pressed == ["gpu"]
    said = ask(link, path)[1]
    assert "done: gpu node-2 &lt;i&gt;" in said
    assert "strikes node-1 &lt;i&gt;" in said


def test_a_fault_that_cannot_be_done_is_told(link: str) -> None:
    path = urlsplit(link).path
    assert "<span>no pod of the job runs</span>" in ask(link, path)[1]
    ask(link, f"{path}none", "POST")
    assert "not done: Nothing: no pod of the job runs" in ask(link, path)[1]


@pytest.mark.parametrize("path", ["/", "/gpu", "/none/gpu", "//gpu"])
def test_who_does_not_know_the_key_sees_nothing_and_breaks_nothing(path: str, link: str, pressed: list[str]) -> None:
    for method in ("GET", "POST"):
        answer, said = ask(link, path, method)
        assert answer.status == 404
        assert "Break" not in said
    assert pressed == []
