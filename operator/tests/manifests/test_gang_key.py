"""The key of gangs: where the operator has it from, the one Secret of each job, and what is believed of a pod."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from jobs import job, spec
from kubernetes.aio.client import Configuration
from memory_api import MemoryApi
from status_pod import GOOD, POD, Server, running_job
from worlds import World

from oarlock_api.contract import gang_key as signing
from oarlock_local import patience
from oarlock_operator.execute import execute
from oarlock_operator.kube.api_error import ApiError
from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.kube.decoding import decoded
from oarlock_operator.kube.server_clock import ANSWERS
from oarlock_operator.kube.throttle import Throttle
from oarlock_operator.manifests.gang_key import gang_key
from oarlock_operator.manifests.pod import pod
from oarlock_operator.model.job_memory import JobMemory
from oarlock_operator.model.observation import Defaults
from oarlock_operator.model.plan import CreatePods
from oarlock_operator.nodes.pool import PoolReader
from oarlock_operator.observe.progress import ProgressReader, Refused, Route
from oarlock_operator.pods.pod_facts import RawPod, read_pod
from oarlock_operator.process.keys import UnusableKeyError, gang_keys, parse_keys
from oarlock_operator.process.settings import Settings
from oarlock_operator.process.startup import StartUp

MASTER, OLDER = b"m" * 32, b"o" * 32
KEYED = replace(POD, program=replace(POD.program, keyed=True))
SECRETS = "/api/v1/namespaces/default/secrets"


async def keys(api: MemoryApi, file: Path | None = None) -> tuple[bytes, ...]:
    return await gang_keys(cast("Cluster", api), file=file, namespace="oarlock", name="oarlock-operator-key")


# The operator's own


async def test_the_operator_makes_its_key_once_and_every_later_one_has_the_same() -> None:
    api = MemoryApi()
    made = await keys(api)
    assert len(made) == 1
    assert len(made[0]) >= signing.LEAST_BYTES
    assert await keys(api) == made
    assert [verb for verb, _ in api.requests].count("POST") == 1
    assert await keys(MemoryApi()) != made


async def test_two_operators_that_start_at_once_have_one_key() -> None:
    api = MemoryApi()

    async def overtaken(verb: str, _path: str) -> None:
        if verb == "POST":
            api.before = None
            await keys(api)

    api.before = overtaken
    assert await keys(api) == await keys(api)


async def test_a_file_outranks_the_own_secret_and_its_first_line_is_for_new_pods(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(MASTER + b"\n\n" + OLDER + b"\n")
    api = MemoryApi()
    assert await keys(api, path) == (MASTER, OLDER)
    assert api.requests == []


async def test_without_the_right_to_secrets_gangs_have_no_keys_and_jobs_run_as_before() -> None:
    api = MemoryApi()
    api.put("/apis/oarlock.dev/v1alpha1/namespaces/ns/trainingjobs")
    start = StartUp(cast("Cluster", api), Settings(namespaces=["ns"], cluster_id="c"))
    assert (await start.read()).keys == ()
    assert not [path for verb, path in api.requests if "secrets" in path]
    assert gang_key(job(), (), nodes=2) is None
    refused = MemoryApi()

    async def refuse(_verb: str, _path: str) -> None:
        raise ApiError(403, "Forbidden", "no")

    refused.before = refuse
    assert await keys(refused) == ()


@pytest.mark.parametrize("body", ["", "\n \n", "short", f"{'k' * 32}\nshort"])
def test_a_key_that_can_be_guessed_is_refused_by_its_place(body: str) -> None:
    with pytest.raises(UnusableKeyError, match="the file holds"):
        parse_keys(body, where="the file")


# The Secret of a job


def with_keys(*keys: bytes) -> Defaults:
    return Defaults(trainer_image="trainer:test", keys=keys)


def made_by(here: World) -> CreatePods:
    return next(action for action in here.one_pass().actions if isinstance(action, CreatePods))


def test_a_gang_has_one_secret_for_all_its_attempts_and_mounts_it_beside_job_json() -> None:
    first, second = (made_by(World(defaults=with_keys(MASTER, OLDER))) for _ in range(2))
    assert first.beside == second.beside
    (secret,) = first.beside
    name = secret["metadata"]["name"]
    for manifest in first.manifests:
        (told,) = [one for one in manifest["spec"]["volumes"] if one["name"] == "oarlock-config"]
        assert told["projected"]["sources"][1] == {"secret": {"name": name, "items": [{"key": "key", "path": "key"}]}}
    key = bytes.fromhex(base64.b64decode(secret["data"]["key"]).decode())
    assert key == signing.job_key(MASTER, job().uid)
    assert secret["immutable"] is True
    assert secret["type"] == signing.SECRET_TYPE
    assert secret["metadata"]["ownerReferences"][0]["uid"] == job().uid


def test_another_key_of_the_operator_gives_another_secret_and_no_name_tells_a_key() -> None:
    one, other = (gang_key(job(), (master,), nodes=2) for master in (MASTER, OLDER))
    assert one is not None
    assert other is not None
    assert one["metadata"]["name"] != other["metadata"]["name"]
    assert one["metadata"]["name"].removeprefix("flux-key-") not in signing.job_key(MASTER, job().uid).hex()


def test_a_job_of_one_node_and_an_operator_without_keys_make_no_secret() -> None:
    for here in (World(job=job(spec=spec(nodes=1)), defaults=with_keys(MASTER)), World()):
        made = made_by(here)
        assert made.beside == ()
        assert "secret" not in str(made.manifests[0]["spec"]["volumes"])


def test_no_plan_shows_a_key() -> None:
    here = World(defaults=with_keys(MASTER))
    key = signing.job_key(MASTER, job().uid).hex()
    shown = repr(here.one_pass()) + repr(here.observe())
    assert key not in shown
    assert base64.b64encode(key.encode()).decode() not in shown
    assert MASTER.decode() not in shown


async def test_a_secret_that_is_there_counts_as_made_and_is_never_read() -> None:
    api = MemoryApi()
    key = gang_key(job(), (MASTER,), nodes=2)
    assert key is not None
    pods = CreatePods((pod(job(), spec(), attempt=1, rank=0, image="i"),), (key,))
    pool = PoolReader(cluster=api, brakes=None)  # type: ignore[arg-type]
    for _ in range(2):
        await execute(api, job(), (pods,), throttle=Throttle(4), pool=pool)  # type: ignore[arg-type]
    assert [verb for verb, path in api.requests if path.startswith(SECRETS)] == ["POST", "POST"]


async def test_the_secret_is_made_at_once_with_the_service_and_no_pod_waits_for_one_after_the_other() -> None:
    api, under_way, most = MemoryApi(), set(), 0

    async def note(_verb: str, path: str) -> None:
        nonlocal most
        under_way.add(path)
        most = max(most, len(under_way))
        await asyncio.sleep(0)
        under_way.remove(path)

    api.before = note
    plan = World(defaults=with_keys(MASTER)).one_pass()
    pool = PoolReader(cluster=api, brakes=None)  # type: ignore[arg-type]
    first = [action for action in plan.actions if not isinstance(action, CreatePods)]
    pods = next(action for action in plan.actions if isinstance(action, CreatePods))
    await execute(api, job(), [*first, CreatePods((), pods.beside)], throttle=Throttle(4), pool=pool)  # type: ignore[arg-type]
    assert len(first) == 1, "the Service"
    assert most == 2


async def test_no_pod_is_made_before_the_secret_that_it_mounts() -> None:
    api = MemoryApi()

    async def refuse(_verb: str, path: str) -> None:
        if path.startswith(SECRETS):
            raise ApiError(500, "InternalError", "for a moment")

    api.before = refuse
    key = gang_key(job(), (MASTER,), nodes=2)
    assert key is not None
    pods = CreatePods((pod(job(), spec(), attempt=1, rank=0, image="i"),), (key,))
    pool = PoolReader(cluster=api, brakes=None)  # type: ignore[arg-type]
    with pytest.raises(ApiError):
        await execute(api, job(), (pods,), throttle=Throttle(4), pool=pool)  # type: ignore[arg-type]
    assert api.objects == {}, "the pods are still missing, so the next pass makes all"


# What is believed of a pod


def agent_with(master: bytes, *, signs: bool = True, ahead: float = 0.0) -> Callable[[web.Request], Any]:
    key = signing.attempt_key(signing.job_key(master, "uid-1"), "uid-1", 1)

    async def answer(request: web.Request) -> web.Response:
        target = "/status" + request.path_qs.partition("/status")[2]
        if not signing.asked_by_one_of_us(key, target, pod_uid="pod-uid", now=time.time() + ahead):
            return web.Response(text=signing.REFUSED, status=403)
        return web.Response(text=signing.answer(key, target, GOOD.to_json()) if signs else GOOD.to_json())

    return answer


@pytest.fixture(params=Route, ids=lambda route: route.value)
async def reader(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[ProgressReader]:
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{server.port}"
    cluster = Cluster(configuration)
    reading = ProgressReader(cluster, request.param, clock=time.monotonic, keys=(MASTER, OLDER))
    yield reading
    await reading.close()
    await cluster.close()


@pytest.mark.parametrize("master", [MASTER, OLDER])
async def test_a_pod_is_asked_with_the_key_that_it_was_given_new_or_old(
    server: Server, reader: ProgressReader, memory: JobMemory, master: bytes
) -> None:
    server.handler = agent_with(master)
    assert [await reader.ask(running_job(server), POD, memory) for _ in range(2)] == [GOOD] * 2
    assert len(server.asked) == (2 if master == MASTER else 3), "which key it has is remembered"


@pytest.mark.parametrize("hour", [3600.0, -3600.0])
async def test_an_operator_whose_clock_is_wrong_is_answered_once_the_api_server_has_told_the_time(
    server: Server, hour: float, memory: JobMemory
) -> None:
    server.handler = agent_with(MASTER, ahead=hour)
    cluster = Cluster(Configuration())
    for _ in range(ANSWERS):
        cluster.server_clock.heard(formatdate(time.time() + hour, usegmt=True), seconds=0.1)
    reading = ProgressReader(cluster, Route.DIRECT, clock=time.monotonic, keys=(MASTER,))
    assert await reading.ask(running_job(server), POD, memory) == GOOD
    await reading.close()
    await cluster.close()


def refusing(memory: JobMemory) -> set[str]:
    return {uid for uid, heard in memory.heard.items() if heard.refuses}


async def test_a_pod_that_knows_another_key_answers_though_it_tells_nothing(
    server: Server, reader: ProgressReader, memory: JobMemory
) -> None:
    server.handler = agent_with(b"x" * 32)
    running = running_job(server)
    async with asyncio.timeout(patience.SECONDS):
        while not refusing(memory):
            assert await reader.read(running, [POD], memory) == (None, {}), "no silence: nobody ends the gang for it"
            await asyncio.gather(*reader._flights.values())
    assert refusing(memory) == {POD.uid}
    assert await reader.answering(running, [POD], memory) == {POD.uid}
    server.handler = agent_with(MASTER)
    async with asyncio.timeout(patience.SECONDS):
        while refusing(memory):
            await reader.read(running, [POD], memory)
            await asyncio.gather(*reader._flights.values())


@pytest.mark.parametrize("known", [(MASTER, OLDER), ()], ids=["keys", "an operator without"])
async def test_a_pod_that_mounts_a_key_is_believed_by_its_signature_alone_from_its_first_answer_on(
    server: Server, reader: ProgressReader, memory: JobMemory, known: tuple[bytes, ...]
) -> None:
    reader.keys = known
    assert await reader.ask(running_job(server), POD, memory) == GOOD, "of an earlier release, without one"
    assert await reader.ask(running_job(server), KEYED, memory) is None
    server.handler = agent_with(MASTER, signs=False)
    assert await reader.ask(running_job(server), KEYED, memory) is (None if known else Refused.KEY)
    server.handler = agent_with(MASTER)
    assert await reader.ask(running_job(server), KEYED, memory) == (GOOD if known else Refused.KEY)


@pytest.mark.parametrize(
    "state", [{}, {"running": {}}, {"terminated": {"exitCode": 1}}], ids=["starts", "runs", "ended"]
)
def test_that_a_pod_mounts_its_gang_s_key_is_read_from_the_pod_itself(state: dict[str, Any]) -> None:
    status = {"containerStatuses": [{"name": "trainer", "state": state}]}
    keyed, plain = (
        pod(job(), spec(), attempt=1, rank=0, image="i", key_secret=secret) | {"status": status}
        for secret in ("flux-key-1", "")
    )
    read = [read_pod(decoded(json.dumps(one).encode(), RawPod, "a pod")).program.keyed for one in (keyed, plain)]
    assert read == [True, False]


BEFORE = "this pod answers those who know the key of its gang\n"


@pytest.mark.parametrize("known", [(MASTER, OLDER), ()], ids=["keys", "an operator without"])
@pytest.mark.parametrize(("said", "status"), [(signing.REFUSED, 403), (BEFORE, 401)], ids=["now", "an earlier release"])
async def test_an_operator_hears_that_it_is_refused(
    server: Server, reader: ProgressReader, known: tuple[bytes, ...], said: str, status: int
) -> None:
    reader.keys = known
    server.handler = server.tell(said, status)
    assert await reader.ask(running_job(server), POD, JobMemory()) is Refused.KEY


async def test_a_refusal_is_no_sign_of_life_of_a_pod_that_has_signed_before(
    server: Server, reader: ProgressReader, memory: JobMemory
) -> None:
    server.handler = agent_with(MASTER)
    assert await reader.answering(running_job(server), [POD], memory) == {POD.uid}
    server.handler = server.tell(signing.REFUSED, 403)
    assert await reader.answering(running_job(server), [POD], memory) == frozenset(), (
        "anybody on its address can say that"
    )
