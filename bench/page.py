"""What the page weighs and costs: its files, its views in Chromium, ten viewers, and how soon a fault is seen.

    .venv/bin/python bench/page.py [--jobs 500] [--viewers 10] [--seconds 60]

A real API server without nodes holds played jobs (tests/page/played.py): 500 that run, and one of 1,000 pods that has ended
after 20 attempts, whose output is mounted. The page is `oarlock web`, a process of its own. Each view is opened five
times, each time by a new browser; a time is from the navigation until the second frame after everything is loaded. Prints
tables, and writes bench/results/page.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "client/tests/web"), str(ROOT / "client/tests/explain")]

from gangs import large  # noqa: E402
from tests.page.played import KIND, Played, ago, many, progress, team  # noqa: E402
from tests.page.serving import laptop  # noqa: E402

from oarlock.web.assets import assets  # noqa: E402
from oarlock_api.contract.history import HISTORY, STORY, parse_story  # noqa: E402
from oarlock_api.contract.layout import OWNER, Owner  # noqa: E402
from oarlock_local.api import ApiServer  # noqa: E402
from oarlock_local.chromium import running as chromium  # noqa: E402
from oarlock_local.cluster import running  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

RESULTS = ROOT / "bench/results/page.json"
TURNS = 5
LARGE = "{:,} ranks x 20 attempts"
WRITE_SECONDS = 10
"""The operator writes a job's progress so often."""
DRAWN = """addEventListener('load', () => requestAnimationFrame(() => requestAnimationFrame(
  () => { window.drawn = performance.now(); })))"""
SEEN = """words => new Promise(done => {
  const look = () => document.body.innerText.includes(words) && done(Date.now());
  new MutationObserver(look).observe(document.body, { childList: true, subtree: true, characterData: true });
  look();
})"""


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--viewers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    found: dict[str, Any] = {"files": files()}
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        cluster = held.enter_context(running("page", nodes=0, state=folder / "clusters"))
        played = Played(cluster, held.enter_context(ApiServer(cluster.kubeconfig)))
        team(played)
        many(played, options.jobs)
        a_large_gang(played, options.ranks, folder / "outputs")
        link = held.enter_context(laptop(cluster.kubeconfig, "--path", str(folder / "outputs")))
        server = serving()
        with chromium() as browser:
            views = {
                "a team's jobs": "/jobs/team-a",
                f"{options.jobs} jobs": "/jobs/many",
                "a job": "/jobs/team-a/flux-lora",
            }
            views[LARGE.format(options.ranks)] = "/jobs/large/flux-lora"
            scene = Scene(browser, link, played)
            found["views"] = {name: view(scene, path) for name, path in views.items()}
            check(scene, views[LARGE.format(options.ranks)])
            found["fault"] = fault(scene)
            found["viewers"] = viewers(scene, server, count=options.viewers, seconds=options.seconds)
    show(found)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1))


def files() -> dict[str, tuple[int, int]]:
    """Name -> bytes of each script and style, as they are and packed."""
    told = {name: content for name, (content, _) in assets().items() if name.endswith((".css", ".js"))}
    return {name: (len(content), len(gzip.compress(content, 4))) for name, content in told.items()}


def a_large_gang(played: Played, ranks: int, outputs: Path) -> None:
    """A job of so many pods on as many nodes that has ended with its 20th attempt, with the history of all in its output."""
    facts = large(ranks)
    if facts.job is None or facts.output is None:
        raise TypeError("there is nothing to play")
    played.namespace("large")
    status = {**facts.job["status"], "phase": "Failed", "completionTime": ago(0)}
    played.job("large", "flux-lora", nodes=ranks, **status)
    uid = played.api.get(f"{KIND.format('large')}/flux-lora")["metadata"]["uid"]
    names = [f"dgx-a-{rank:04d}.cluster.local" for rank in range(ranks)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(played.nodes, names))
        made = {"uid": uid, "attempt": 20}
        list(pool.map(lambda rank: played.pod("large", "flux-lora", **made, rank=rank, node=names[rank]), range(ranks)))
    output = outputs / "flux-lora"
    (output / HISTORY).mkdir(parents=True)
    (output / OWNER).write_text(Owner(uid, 20).to_json())
    lines = [json.dumps({**line, "job": uid}) for line in facts.output.history]
    story = parse_story("".join(f"{line}\n" for line in lines))
    (output / HISTORY / STORY).write_text("".join(f"{line.to_json()}\n" for line in story))
    metrics = "".join(f"{json.dumps(row)}\n" for row in facts.output.metrics)
    (output / "metrics.jsonl").write_text(metrics)


def serving() -> psutil.Process:
    """The page's process."""
    (found,) = [one for one in psutil.Process().children(recursive=True) if "web" in one.cmdline()]
    return found


@dataclass(frozen=True, slots=True)
class Scene:
    """The page's link, and what is played behind it."""

    browser: Browser
    link: str
    played: Played

    @contextmanager
    def page(self) -> Iterator[Page]:
        """A page of a new browser that has followed the link, and has loaded nothing yet."""
        with self.browser.new_context(viewport={"width": 1280, "height": 900}) as made:
            made.set_default_timeout(60_000)
            made.request.get(self.link, max_redirects=0)
            yield made.new_page()

    def at(self, path: str) -> str:
        """An address."""
        return f"{self.link.partition('/enter')[0]}{path}"


def view(scene: Scene, path: str) -> dict[str, Any]:
    """Milliseconds of a view: the first time, when the server has read nothing yet, and then; its bytes and elements."""
    times, answers = [], []
    for _ in range(TURNS + 1):
        with scene.page() as page:
            page.add_init_script(DRAWN)
            page.goto(scene.at(path))
            page.wait_for_function("() => window.drawn")
            times.append(page.evaluate("window.drawn"))
            answers.append(page.evaluate("performance.getEntriesByType('navigation')[0].responseEnd"))
            size = page.evaluate("performance.getEntriesByType('navigation')[0].decodedBodySize")
            elements = page.evaluate("document.querySelectorAll('*').length")
    return {
        "first": times[0],
        "drawn": statistics.median(times[1:]),
        "most": max(times[1:]),
        "answered": statistics.median(answers[1:]),
        "kilobytes": size / 1000,
        "elements": elements,
    }


def check(scene: Scene, path: str) -> None:
    """Raise where the large job's timeline lacks an attempt: a page that shows less is drawn soon."""
    with scene.page() as page:
        page.goto(scene.at(path))
        shown = page.locator("#part-timeline a").all_text_contents()
        if not {str(number) for number in range(1, 21)} <= {words.strip() for words in shown}:
            raise RuntimeError(f"the timeline has not 20 attempts: {shown[:40]}")


def fault(scene: Scene) -> list[float]:
    """Milliseconds from the operator's write of a status until an open page shows the fault, each time."""
    took = []
    with scene.page() as page:
        page.goto(scene.at("/jobs/team-a/flux-lora"))
        last = scene.played.api.get(f"{KIND.format('team-a')}/flux-lora")["status"]["lastFault"]
        for turn in range(TURNS):
            words = f"rank {turn} was killed by SIGBUS"
            page.evaluate(f"words => {{ window.seen = ({SEEN})(words); }}", words)
            before = time.time()
            scene.played.tell("team-a", "flux-lora", lastFault={**last, "time": ago(204.5), "evidence": [words]})
            took.append(page.evaluate("window.seen") - 1000 * before)
            page.wait_for_timeout(1500)
    return took


def viewers(scene: Scene, server: psutil.Process, *, count: int, seconds: float) -> dict[str, float]:
    """What the server uses while so many look, half at a job that moves and half at the list that it is in."""
    with ExitStack() as held:
        pages = []
        for number in range(count):
            page = held.enter_context(scene.page())
            page.goto(scene.at("/jobs/team-a/flux-lora" if number % 2 else "/jobs/team-a"))
            pages.append(page)
        pages[0].wait_for_timeout(5000)
        before, began = server.cpu_times(), time.monotonic()
        step = 1790
        while time.monotonic() - began < seconds:
            step += 1
            scene.played.tell("team-a", "flux-lora", progress=progress(step))
            pages[0].wait_for_timeout(1000 * WRITE_SECONDS)
        passed, after = time.monotonic() - began, server.cpu_times()
        if not all(f"{step:,}" in page.inner_text("main") for page in pages):
            raise RuntimeError("somebody has not seen the last step")
    used = after.user + after.system - before.user - before.system
    status = Path(f"/proc/{server.pid}/status").read_text()
    peak = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024
    return {"cores": used / passed, "mebibytes": server.memory_info().rss / (1 << 20), "peak_mebibytes": peak}


def show(found: dict[str, Any]) -> None:
    """Print the tables."""
    out = [f"load {os.getloadavg()[0]:.1f}", "", "| file | KB | packed |", "| --- | --- | --- |"]
    out += [f"| {name} | {size / 1000:.1f} | {packed / 1000:.1f} |" for name, (size, packed) in found["files"].items()]
    whole, packed = (sum(column) / 1000 for column in zip(*found["files"].values(), strict=True))
    out += [f"| all | {whole:.1f} | {packed:.1f} |", ""]
    out += ["| view | drawn, ms | most | by the first of all | answered, ms | KB | elements |", "|" + " --- |" * 7]
    for name, one in found["views"].items():
        times = " | ".join(f"{one[key]:.0f}" for key in ("drawn", "most", "first", "answered", "kilobytes"))
        out.append(f"| {name} | {times} | {one['elements']:,} |")
    took = found["fault"]
    out += [
        "",
        f"fault on the open page after the status was written: {statistics.median(took):.0f} ms, most {max(took):.0f} ms",
    ]
    used = found["viewers"]
    out.append(
        f"all viewers: {100 * used['cores']:.1f} % of a core, {used['mebibytes']:.0f} MiB (peak {used['peak_mebibytes']:.0f})"
    )
    print("\n".join(out))


if __name__ == "__main__":
    main()
