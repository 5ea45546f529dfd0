"""When ranks count as hung: tables over what they told and the time since."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_trainer.agent.hangs.hang import Starts, Watch
from oarlock_trainer.ranks.rank_host import HostEvent
from oarlock_trainer.runtime.channel import Event, Message

HOUR = 3600


class Scene:
    """Ranks 8 and 9 of a node, and a clock that the agent looks at every second."""

    def __init__(self, *, hang_seconds: int = 0, awaits_first_step: bool = True) -> None:
        self.now = 1000.0
        self.starts = Starts()
        self.rules: dict[str, Any] = {"hang_seconds": hang_seconds, "awaits_first_step": awaits_first_step}
        self.start()

    def start(self, *, from_memory: bool = False) -> None:
        self.watch = Watch((8, 9), **self.rules, now=self.now, starts=self.starts, from_memory=from_memory)
        self.steps = 0

    def passes(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + 1.0, end)
            self.watch.advance(self.now)
            assert self.watch.hang() is None, f"hung {end - self.now} s early"

    def tell(self, event: str, *, ranks: tuple[int, ...] = (8, 9), **fields: Any) -> None:
        for rank in ranks:
            self.watch.take(Message(event, rank, fields))

    def phase(self, name: str) -> None:
        self.tell(Event.PHASE, name=name)

    def step(self, *durations: float) -> None:
        for seconds in durations:
            self.passes(seconds)
            self.steps += 1
            self.tell(Event.STEP, step=self.steps)

    def train(self, *durations: float) -> None:
        self.phase("Training")
        self.step(*durations)

    def hangs_after(self, within: float = 3 * HOUR) -> int | None:
        """Whole seconds of silence that were borne, None where it is borne for ever."""
        for second in range(1, int(within)):
            self.now += 1.0
            self.watch.advance(self.now)
            if self.watch.hang():
                return second - 1
        return None


def trained(*durations: float, **settings: Any) -> Scene:
    scene = Scene(**settings)
    scene.train(*durations)
    return scene


def then(scene: Scene, *phases: str) -> Scene:
    for phase in phases:
        scene.phase(phase)
    return scene


def told(scene: Scene, *events: str) -> Scene:
    for event in events:
        scene.passes(500)
        scene.tell(event)
    return scene


@pytest.mark.parametrize(
    ("scene", "seconds"),
    [
        pytest.param(Scene(), 1800, id="nothing told since the start"),
        pytest.param(then(Scene(), "Training"), 1800, id="no first step"),
        pytest.param(trained(1.0), 60, id="after a quick step"),
        pytest.param(trained(*[1.0] * 300), 60, id="after many quick steps"),
        pytest.param(trained(*[20.0] * 5), 100, id="five slow steps"),
        pytest.param(trained(100.0, *[1.0] * 5), 500, id="a slow first step is patience at first"),
        pytest.param(trained(30.0, *[1.0] * 150), 60, id="and is forgotten after a hundred"),
        pytest.param(trained(*[1.0] * 50, 40.0, 40.0, 40.0), 200, id="steps that have become slow"),
        pytest.param(trained(*[30.0] * 20, *[2.0] * 200), 60, id="steps that have become quick"),
        pytest.param(trained(1.0, hang_seconds=7), 7, id="hangSeconds instead of what was learned"),
        pytest.param(trained(1.0, hang_seconds=HOUR), HOUR, id="long hangSeconds"),
        pytest.param(Scene(hang_seconds=7), 1800, id="hangSeconds is not for the first step"),
        pytest.param(Scene(hang_seconds=HOUR), HOUR, id="unless it is longer"),
        pytest.param(then(trained(1.0), "Saving"), 900, id="saving"),
        pytest.param(then(trained(1.0, hang_seconds=7), "Saving"), 900, id="saving with short hangSeconds"),
        pytest.param(then(trained(1.0, hang_seconds=HOUR), "Saving"), HOUR, id="saving with long hangSeconds"),
        pytest.param(then(trained(1.0), "Saving", "Training"), 60, id="after saving"),
        pytest.param(then(trained(1.0), "Validating"), 1800, id="validation"),
        pytest.param(then(trained(1.0), "Exporting"), 1800, id="export"),
        pytest.param(then(trained(1.0), "Done"), 300, id="leaving"),
        pytest.param(then(Scene(), "Preprocessing"), 900, id="before the first batch"),
        pytest.param(told(then(Scene(), "Preprocessing"), *["working"] * 9), 900, id="between two batches"),
        pytest.param(told(then(Scene(), "Preprocessing"), "working", "waiting"), None, id="waiting for other ranks"),
        pytest.param(told(then(Scene(), "Preprocessing"), "waiting", "working"), 900, id="no longer waiting"),
        pytest.param(then(told(then(Scene(), "Preprocessing"), "waiting"), "Starting"), 1800, id="after preprocessing"),
        pytest.param(then(trained(1.0), "Dreaming"), 60, id="a phase that nobody knows"),
        pytest.param(Scene(awaits_first_step=False), None, id="a program that tells nothing"),
        pytest.param(
            then(Scene(awaits_first_step=False), "Training"), None, id="a program that tells a phase and no step"
        ),
        pytest.param(Scene(awaits_first_step=False, hang_seconds=7), None, id="the same with hangSeconds"),
        pytest.param(trained(1.0, awaits_first_step=False), 60, id="any program that tells of steps"),
    ],
)
def test_silence_is_borne_for_as_long_as_what_the_rank_does_may_take(scene: Scene, seconds: int | None) -> None:
    assert scene.watch.allowed == seconds
    assert scene.hangs_after() == seconds


def test_a_note_is_no_progress() -> None:
    scene = trained(1.0)
    for _ in range(6):
        scene.passes(10)
        scene.tell(Event.NOTE, message="still here")
    assert scene.hangs_after() == 0


def test_a_step_ends_whatever_phase_was_told_before() -> None:
    scene = then(trained(1.0), "Saving")
    scene.step(1.0)
    assert scene.hangs_after() == 60


def test_a_save_between_two_steps_does_not_make_the_steps_look_slow() -> None:
    scene = trained(*[1.0] * 5)
    for _ in range(5):
        scene.phase("Saving")
        scene.passes(300)
        scene.train(1.0)
    assert scene.hangs_after() == 60


def test_one_silent_rank_is_enough_and_it_is_named_with_where_all_stand() -> None:
    scene = trained(1.0)
    for _ in range(30):
        scene.passes(2)
        scene.tell(Event.STEP, ranks=(8,), step=5)
    scene.watch.advance(scene.now + 1)
    hang = scene.watch.hang()
    assert hang is not None
    assert (hang.overdue.rank, hang.overdue.step, hang.overdue.silent, hang.overdue.allowed) == (9, 1, 61.0, 60.0)
    assert [(one.rank, one.step) for one in hang.ranks] == [(8, 5), (9, 1)]


def test_a_rank_that_has_ended_is_not_missed() -> None:
    scene = trained(1.0)
    for rank in (8, 9):
        scene.watch.ended(rank)
    assert scene.watch.allowed is None
    assert scene.hangs_after() is None


def test_ranks_of_other_nodes_and_ends_are_not_heard() -> None:
    scene = trained(1.0)
    scene.passes(60)
    scene.tell(Event.STEP, ranks=(0, -1), step=9)
    scene.tell(HostEvent.ENDED, code=0)
    scene.tell(HostEvent.READY)
    assert scene.hangs_after() == 0


def test_the_start_of_the_processes_ends_the_time_for_imports_and_begins_the_time_to_the_first_step() -> None:
    scene = Scene()
    scene.passes(1700)
    scene.tell(HostEvent.STARTED, pid=7)
    assert scene.hangs_after() == 1800


@pytest.mark.parametrize(
    ("start", "hang_seconds", "borne"), [(3.0, 0, 120), (40.0, 0, 200), (40.0, 300, 300), (900.0, 0, 1800)]
)
def test_ranks_that_go_on_from_memory_get_some_times_what_starts_have_taken(
    start: float, hang_seconds: int, borne: int
) -> None:
    scene = trained(start, hang_seconds=hang_seconds)
    scene.start(from_memory=True)
    assert scene.hangs_after() == borne


def test_ranks_that_read_a_checkpoint_get_as_long_as_the_first_ones() -> None:
    scene = trained(3.0)
    scene.start()
    assert scene.hangs_after() == 1800


def test_what_a_start_takes_is_known_only_once_there_was_one() -> None:
    scene = Scene()
    scene.passes(5.0)
    scene.start(from_memory=True)
    assert scene.hangs_after() == 1800


@given(pauses=st.lists(st.floats(-1e9, 1e9), max_size=8))
def test_a_pause_of_the_machine_or_a_jump_of_the_clock_is_no_silence(pauses: list[float]) -> None:
    scene = trained(1.0)
    for seconds in pauses:
        scene.now += seconds
        scene.watch.advance(scene.now)
    assert scene.watch.hang() is None
    assert scene.hangs_after() in range(60 - 5 * len(pauses) - 1, 61)


@given(durations=st.lists(st.floats(0.01, 59.9), min_size=1, max_size=30))
def test_steps_at_most_a_minute_apart_never_hang(durations: list[float]) -> None:
    trained(*durations)  # passes() looks at every second


@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(Event)) | st.text(max_size=5),
            st.dictionaries(
                st.sampled_from(["name", "step"]),
                st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9) | st.lists(st.none()),
            ),
        )
    )
)
def test_whatever_a_rank_tells_it_can_still_be_judged(messages: list[tuple[str, dict[str, Any]]]) -> None:
    scene = Scene()
    for event, fields in messages:
        scene.watch.take(Message(event, 8, fields))
    assert scene.hangs_after() is not None
