"""What the agent tells: the status board, HTTP, and metrics."""

from __future__ import annotations

import math
import socket
import urllib.error
import urllib.request
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from oarlock_api.contract.health import Health, HealthState
from oarlock_api.contract.report import Gpu
from oarlock_api.contract.status import Degradation, MemoryStatus, PodPhase, parse_status
from oarlock_local import patience
from oarlock_trainer.agent.status import metrics
from oarlock_trainer.agent.status.status_board import StatusBoard
from oarlock_trainer.agent.status.status_server import StatusServer
from oarlock_trainer.health import circuit
from oarlock_trainer.health.circuit import Circuit
from oarlock_trainer.runtime.assignment import Pod
from oarlock_trainer.runtime.channel import Event, Message

POD = Pod(rank=1, job="flux", attempt=2, pod_uid="p", node="n")
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.lists(st.integers())
FIELDS = (
    "name",
    "step",
    "total",
    "epoch",
    "loss",
    "mfu",
    "dataSeconds",
    "skippedUpdates",
    "path",
    "savedAt",
    "stallSeconds",
    "message",
    "reason",
    "effectiveBatch",
    "zeroStage",
    "memoryBytes",
    "code",
)


def new_board() -> StatusBoard:
    seconds = count()
    return StatusBoard(POD, job_uid="u", ranks_per_pod=8, clock=lambda: f"2026-01-01T00:00:{next(seconds):02d}Z")


def test_the_first_step_is_dated_once() -> None:
    board = new_board()
    for step in (5, 6):
        board.apply(Message(Event.STEP, 8, {"step": step, "total": 10}))
    assert board.status.figures.step == 6
    assert board.status.first_step_at == "2026-01-01T00:00:01Z"


def test_progress_is_taken_from_the_pods_first_rank_alone() -> None:
    board = new_board()
    board.apply(Message(Event.STEP, 9, {"step": 5}))
    assert board.status.figures.step is None


def test_a_loss_that_is_no_number_is_unknown_instead_of_old() -> None:
    board = new_board()
    board.apply(Message(Event.STEP, 8, {"step": 1, "loss": 0.5}))
    board.apply(Message(Event.STEP, 8, {"step": 2, "loss": None}))
    assert (board.status.figures.step, board.status.figures.loss) == (2, None)


def test_a_loss_that_is_not_finite_degrades_the_pod_until_one_is() -> None:
    board = new_board()
    board.apply(Message(Event.STEP, 8, {"step": 1, "loss": None}))
    assert board.status.degraded == {Degradation.NON_FINITE_LOSS: "the loss of the last step is not finite"}
    board.apply(Message(Event.STEP, 8, {"step": 2}))
    assert set(board.status.degraded) == {Degradation.NON_FINITE_LOSS}, "a step that tells no loss says nothing of it"
    board.apply(Message(Event.STEP, 8, {"step": 3, "loss": 0.5}))
    assert board.status.degraded == {}


def test_what_a_rank_calls_degraded_stands_there_until_it_says_that_it_is_over() -> None:
    board = new_board()
    for kind in ("CheckpointStorageFull", "CheckpointNotCopied", "BadWeather"):
        board.apply(Message(Event.DEGRADED, 8, {"reason": kind, "message": f"{kind}!"}))
    board.apply(Message(Event.DEGRADED, 8, {"reason": "CheckpointNotCopied", "message": ""}))
    assert parse_status(board.status.to_json()).degraded == {"CheckpointStorageFull": "CheckpointStorageFull!"}
    families = text_string_to_metric_families(metrics.exposition("flux", board.status).decode())
    degraded = next(family for family in families if family.name == "oarlock_trainer_degraded").samples
    assert [one.labels["reason"] for one in degraded if one.value] == ["CheckpointStorageFull"]


def test_the_state_in_memory_is_told_until_ranks_start_anew_or_none_is_kept_any_more() -> None:
    held = Message(Event.MEMORY, 8, {"step": 40, "savedAt": "2026-01-01T00:00:00Z", "copied": False})
    board = new_board()
    board.apply(held)
    assert parse_status(board.status.to_json()).memory == MemoryStatus(40, "2026-01-01T00:00:00Z", copied=False)
    board.start_anew("again")
    assert board.status.memory is None
    board.apply(held)
    board.apply(Message(Event.DEGRADED, 8, {"reason": "MemoryOff", "message": "full"}))
    assert parse_status(board.status.to_json()).memory is None


@given(
    st.lists(
        st.builds(
            Message,
            st.sampled_from(list(Event)) | st.text(max_size=10),
            st.sampled_from([8, 9]),
            st.dictionaries(st.sampled_from(FIELDS), VALUES),
        ),
        max_size=8,
    )
)
def test_whatever_a_rank_tells_the_status_can_be_written_and_read(messages: list[Message]) -> None:
    board = new_board()
    for message in messages:
        board.apply(message)
    body = board.status.to_json()
    assert len(body) < 65536
    assert parse_status(body).phase in set(PodPhase)
    metrics.exposition("flux", board.status)


def test_metrics_have_no_sample_for_what_is_not_known() -> None:
    board = new_board()
    board.apply(Message(Event.STEP, 8, {"step": 7, "total": 10, "loss": math.nan}))
    families = text_string_to_metric_families(metrics.exposition("flux", board.status).decode())
    samples = {family.name: family.samples for family in families}
    assert [(sample.value, sample.labels) for sample in samples["oarlock_trainer_step"]] == [
        (7.0, {"training_job": "flux", "rank": "1"})
    ]
    assert "oarlock_trainer_loss" not in samples or samples["oarlock_trainer_loss"] == []


def test_metrics_tell_what_a_step_s_seconds_were_spent_on() -> None:
    board = new_board()
    board.apply(Message(Event.STEP, 8, {"step": 7, "forwardSeconds": 0.5, "dataSeconds": 0.25, "skippedUpdates": 2}))
    families = text_string_to_metric_families(metrics.exposition("flux", board.status).decode())
    samples = {family.name: family.samples for family in families}
    parts = {one.labels["part"]: one.value for one in samples["oarlock_trainer_step_part_seconds"]}
    assert parts == {"forward": 0.5, "data": 0.25}
    assert [one.value for one in samples["oarlock_trainer_skipped_updates"]] == [2]


def test_metrics_escape_what_a_label_cannot_hold() -> None:
    text = metrics.exposition('fl"ux\\\n', new_board().status).decode()
    attempt = next(
        family for family in text_string_to_metric_families(text) if family.name == "oarlock_trainer_attempt"
    )
    assert attempt.samples[0].labels["training_job"] == 'fl"ux\\\n'


def test_metrics_date_what_is_dated() -> None:
    families = text_string_to_metric_families(metrics.exposition("flux", new_board().status).decode())
    started = next(family for family in families if family.name == "oarlock_trainer_start_timestamp_seconds")
    assert started.samples[0].value == 1767225600.0


def test_metrics_mark_exactly_one_phase() -> None:
    board = new_board()
    board.enter(PodPhase.TRAINING)
    families = text_string_to_metric_families(metrics.exposition("flux", board.status).decode())
    phases = next(family for family in families if family.name == "oarlock_trainer_phase").samples
    assert [sample.labels["phase"] for sample in phases if sample.value == 1] == ["Training"]


def test_metrics_tell_which_probes_a_pod_has_and_how_its_gpus_are() -> None:
    board = new_board()
    board.health(Health(state=HealthState.HOLD, probes={"xid": True, "sram": False}))
    families = text_string_to_metric_families(metrics.exposition("flux", board.status).decode())
    samples = {family.name: family.samples for family in families}
    probes = {one.labels["probe"]: one.value for one in samples["oarlock_trainer_gpu_probe_supported"]}
    assert probes == {"xid": 1.0, "sram": 0.0}
    assert [one.labels["state"] for one in samples["oarlock_trainer_gpu_health"] if one.value] == ["Hold"]


@pytest.fixture
def board() -> StatusBoard:
    return new_board()


def serve(board: StatusBoard, *, alive: bool = True) -> str:
    server = StatusServer(port=0, job="flux", status=lambda: board.status, alive=lambda: alive)
    return f"http://127.0.0.1:{server.port}"


def test_status_is_the_contracts_json(board: StatusBoard) -> None:
    with urllib.request.urlopen(serve(board) + "/status?x=1") as answer:  # noqa: S310
        assert answer.headers["Content-Type"] == "application/json"
        assert parse_status(answer.read().decode()) == board.status


def test_a_program_in_the_pod_can_ask_whether_its_gpus_may_be_used(
    board: StatusBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(circuit.PORT, serve(board).rpartition(":")[2])
    assert circuit.read() == Circuit("closed")
    gpu = Gpu(index=3, uuid="GPU-3")
    board.health(Health(circuit="open", reason="XID 79", gpu=gpu, since="2026-01-01T00:00:00Z"))
    assert circuit.read() == Circuit("open", "XID 79", gpu, "2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("request_line", "answer"),
    [
        pytest.param(b"GET /nothing HTTP/1.0\r\n\r\n", b" 404 ", id="unknown path"),
        pytest.param(b"POST /status HTTP/1.0\r\nContent-Length: 9\r\n\r\n", b" 501 ", id="not readable"),
        pytest.param(b"nonsense\r\n\r\n", b"400", id="no HTTP"),
        pytest.param(b"GET /" + b"x" * 100_000 + b" HTTP/1.0\r\n\r\n", b" 414 ", id="endless line"),
        pytest.param(b"HEAD /healthz HTTP/1.0\r\n\r\n", b" 200 ", id="HEAD"),
    ],
)
def test_strange_requests_get_a_short_answer(board: StatusBoard, request_line: bytes, answer: bytes) -> None:
    port = int(serve(board).rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=patience.SECONDS) as client:
        client.sendall(request_line)
        client.shutdown(socket.SHUT_WR)
        assert answer in client.recv(4096)


def test_a_supervisor_that_hangs_is_unhealthy(board: StatusBoard) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(serve(board, alive=False) + "/healthz")  # noqa: S310
    assert refused.value.code == 503


def test_silent_clients_leave_room_for_others(board: StatusBoard) -> None:
    base = serve(board)
    port = int(base.rpartition(":")[2])
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
    with urllib.request.urlopen(base + "/healthz", timeout=patience.SECONDS) as answer:  # noqa: S310
        assert answer.status == 200
    for client in silent:
        client.close()
