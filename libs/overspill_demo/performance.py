"""`overspill demo`: starts the lab, plays the scenario in it, watches from the outside, and judges.

On a cluster that runs already the lab brings only what that cluster does not have, and the demo takes away again what
it made there.

The composition root of the demo: the only module that knows all the others.
"""

import asyncio
import contextlib
import math
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
from msgspec import Struct

from overspill_bus import BusSettings
from overspill_bus import connect as connect_bus
from overspill_demo import objects
from overspill_demo.arrangement import HOURS_PER_SECOND, MAX_EXTERNAL_GPUS, VIRTUAL_NODE, ArrangementError, arranged
from overspill_demo.ending import place, told_when_stopped, where_the_ledger_is
from overspill_demo.ground.clearing import clear
from overspill_demo.ground.preparing import examine, prepare
from overspill_demo.invariants import judge
from overspill_demo.narration import Narration
from overspill_demo.progress import Progress
from overspill_demo.provider import ProviderBooks
from overspill_demo.recollection import Figures
from overspill_demo.scenario import Scenario, built_in, load, stretched
from overspill_demo.story import Story
from overspill_demo.summary import Circumstances, Summary, in_words, summarise
from overspill_demo.watching import Watch
from overspill_kube.client import connect as connect_kube
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.settings import KubeSettings
from overspill_lab.lab import Cluster, Lab
from overspill_lab.programs import Progress as ProgramProgress
from overspill_lab.programs import State
from overspill_runtime.clock import SystemClock
from overspill_runtime.terminal import tell

DEADLINE_S: Final = 165.0
CLUSTER_DEADLINE_S: Final = 600.0
# A real Job controller completes and starts about ten Jobs a second. Research that ends faster than that leaves home
# empty in the middle of the wave, and the gate rightly follows: another story than the one that is judged here.
CLUSTER_STRETCH: Final = 3.0
QUIET_S: Final = 2.0  # the end must hold this long to count
LOOK_EVERY_S: Final = 0.5
FULL: Final = 0.1  # of home's GPUs free, or less: inference scales up into a full home
MIDDLE: Final = 8  # the middle is reached when one in eight inference replicas is where the victim is needed


class Options(Struct, frozen=True, kw_only=True):
    """What `overspill demo` was asked for; `deadline` in seconds from the start of the story."""

    scenario: Path | None = None
    kill: str | None = None
    settings: tuple[str, ...] = ()
    deadline: float | None = None
    folder: Path | None = None
    summary: Path | None = None
    cluster: Cluster | None = None

    @property
    def patience(self) -> float:
        """The deadline, or what a busy machine may take: a real control plane has queues and back-offs of its own."""
        usual = DEADLINE_S if self.cluster is None else CLUSTER_DEADLINE_S
        return usual if self.deadline is None else self.deadline


# What tells that a victim is busy: pods at home for the admitter, pods without a place for the gate's services, …
MOMENTS: Final[Mapping[str, Callable[[Figures, Watch], int]]] = {
    "admitter": lambda now, _: now.home,
    "sampler": lambda now, _: now.pending,
    "decider": lambda now, _: now.pending,
    "bridge": lambda now, _: now.virtual,
    "recorder": lambda now, _: now.virtual,
    "nats": lambda now, _: now.virtual,
    "evictor": lambda _, watch: len(watch.recollection.evictions),
}


async def perform(options: Options) -> int:
    """Play and judge; 0 when every promise was kept, 1 otherwise.

    Raises ScenarioError and ArrangementError for input that cannot be used, LabError when the lab cannot run,
    StoryError when a part of the story is refused; with a cluster also GroundError when the story cannot be played in
    it, ConfigError for its kubeconfig, KubeUnavailable and KubeError when it does not answer as it must.
    """
    scenario = load(options.scenario or built_in())
    if options.cluster is not None:
        scenario = stretched(scenario, CLUSTER_STRETCH)
    settings = arranged(options.settings)
    if not 0 < options.patience < math.inf:
        raise ArrangementError(f"--deadline {options.deadline:g}: give seconds, more than 0")
    if options.summary is not None:
        _check_writable(options.summary)
    clock = asyncio.get_running_loop().time
    with place(options.folder, prefix="overspill-demo-") as folder, Progress(clock) as progress:
        try:
            summary = await told_when_stopped(_played(scenario, settings, folder, options, progress), progress.note)
        except asyncio.CancelledError:
            progress.note(where_the_ledger_is(folder))
            raise
    if options.summary is not None:
        options.summary.write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")
    tell(sys.stdout, in_words(summary))
    command = sys.argv[0]  # as it was typed, so that what is told can be typed too
    sys.stdout.write(f"\nAsk the ledger: {command} events --ledger {summary.ledger}\n")
    sys.stdout.write(f"                {command} explain node/{VIRTUAL_NODE} --ledger {summary.ledger}\n")
    return 1 if summary.broken else 0


def _check_writable(path: Path) -> None:
    """Before minutes are spent. Raises ArrangementError."""
    try:
        path.touch()
    except OSError as error:
        raise ArrangementError(f"--json {path}: cannot be written: {error.strerror}") from error


async def _played(
    scenario: Scenario, settings: Mapping[str, Mapping[str, str]], folder: Path, options: Options, progress: Progress
) -> Summary:
    async with contextlib.AsyncExitStack() as stack:
        if options.cluster is not None:
            await stack.enter_async_context(_ground(options.cluster, progress))
        progress.note(f"starting the lab in {folder}")
        lab = await stack.enter_async_context(
            Lab(
                folder,
                nodes=objects.home_nodes(scenario),
                service_settings=settings,
                cluster=options.cluster,
                cloud_arguments=("--hours-per-second", str(HOURS_PER_SECOND)),
                progress=_teller(progress),
            )
        )
        progress.note(f"NATS: {lab.nats_url}", f"nats --server {lab.nats_url} subscribe 'overspill.>'")
        progress.note(f"Kubernetes: {lab.kubeconfig}", f"kubectl --kubeconfig {lab.kubeconfig} get pods -A")
        progress.note("for another shell, to ask and to give orders meanwhile:", *lab.exports)
        kube = await stack.enter_async_context(
            connect_kube(KubeSettings(kubeconfig=str(lab.kubeconfig), user_agent="overspill-demo"))
        )
        bus_settings = BusSettings(cluster="lab", service="demo", nats_url=lab.nats_url)
        bus = await stack.enter_async_context(connect_bus(bus_settings, clock=SystemClock()))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        books = ProviderBooks(lab.cloud_url, lab.cloud_token, session)
        watch = Watch(scenario, kube=kube, bus=bus, books=books)
        await stack.enter_async_context(watch.running())
        story = Story(scenario, kube, home_is_full=lambda: watch.free_share() <= FULL, note=progress.note)
        await _unless_it_fails(lab, _tell(story, watch, lab, options, progress))
        seen = await watch.observation(lab.ledger, max_external_gpus=MAX_EXTERNAL_GPUS)
        around = Circumstances(
            scenario=scenario.name,
            killed=options.kill,
            pods_total=scenario.pods_total,
            pods_home_max=watch.recollection.home_max,
            evictions_refused=watch.stream.refused,
            totals=await books.totals(),
            nats_url=lab.nats_url,
            kubeconfig=lab.kubeconfig,
            ledger=lab.ledger,
            wall_s=progress.elapsed,
        )
        return summarise(seen, judge(seen), around)


@contextlib.asynccontextmanager
async def _ground(cluster: Cluster, progress: Progress) -> AsyncIterator[None]:
    """The cluster made ready before the lab starts, and cleared after it has ended, also when the story fails."""
    async with connect_kube(KubeSettings(kubeconfig=str(cluster.kubeconfig), user_agent="overspill-demo")) as kube:
        progress.note(f"preparing the cluster of {cluster.kubeconfig}")
        await examine(kube, note=progress.note)
        try:
            await prepare(kube)
            yield
        except BaseException:
            with contextlib.suppress(KubeUnavailable, KubeError):  # the failure itself is what must be told
                await clear(kube, note=progress.note)
            raise
        await clear(kube, note=progress.note)


async def _tell(story: Story, watch: Watch, lab: Lab, options: Options, progress: Progress) -> None:
    """From the first object to the quiet end, or to the deadline."""
    await _until(lambda: watch.recollection.gate_open is not None)
    await story.prepare()
    progress.note("the story begins")
    helpers = [asyncio.create_task(story.play()), asyncio.create_task(_lift_freeze(story, watch))]
    if options.kill is not None:
        helpers.append(asyncio.create_task(_kill(options.kill, watch, lab, progress)))
    try:
        async with asyncio.timeout(options.patience):
            await _until_quiet(story, watch, progress, helpers)
    except TimeoutError:
        progress.note(f"the deadline of {options.patience:g} s has passed: judged as it stands")
    finally:
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)


async def _until_quiet(story: Story, watch: Watch, progress: Progress, helpers: list[asyncio.Task[None]]) -> None:
    """Until everything is home, finished and paid, and stays so for QUIET_S."""
    loop, narration = asyncio.get_running_loop(), Narration(watch.scenario)
    quiet_since: float | None = None
    trouble: str | None = None
    while True:
        for helper in helpers:
            if helper.done():
                helper.result()
        if (now := watch.trouble()) != trouble:
            trouble = now
            progress.note(f"from the outside: {trouble or 'the bus is back'}")
        figures = watch.figures()
        for news in narration.news(watch.recollection, figures):
            progress.note(news)
        progress.show(figures, watch.totals)
        if not (story.all_submitted.is_set() and await _is_over(watch)):
            quiet_since = None
        elif quiet_since is None:
            quiet_since = loop.time()
        elif loop.time() - quiet_since >= QUIET_S:
            progress.note("everybody is home, nothing lives outside")
            return
        await asyncio.sleep(LOOK_EVERY_S)


async def _is_over(watch: Watch) -> bool:
    if watch.recollection.gate_open or watch.spilled_left() or watch.short_deployments() or watch.totals.living:
        return False
    return not await watch.unfinished_jobs()


async def _lift_freeze(story: Story, watch: Watch) -> None:
    await _until(lambda: watch.recollection.closings > 0)
    await story.lift_freeze()


async def _kill(victim: str, watch: Watch, lab: Lab, progress: Progress) -> None:
    busy, enough = MOMENTS[victim], max(1, watch.scenario.replicas // MIDDLE)
    await _until(lambda: busy(watch.figures(), watch) >= enough)
    pid = await lab.kill(victim)
    progress.note(f"killed {victim} (SIGKILL, pid {pid}); the lab starts it again")


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 the conditions span several informers
        await asyncio.sleep(0.1)


async def _unless_it_fails(lab: Lab, work: Coroutine[Any, Any, None]) -> None:
    """Do the work, unless the lab fails meanwhile. Raises LabError then, and what the work raises."""
    tasks = {asyncio.create_task(work), asyncio.create_task(lab.failed())}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:  # also when this is cancelled (Ctrl-C): neither may outlive what it works with
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


def _teller(progress: Progress) -> Callable[[ProgramProgress], None]:
    def tell(program: ProgramProgress) -> None:
        if program.state in {State.DIED, State.KILLED, State.READY}:
            progress.note(f"{program.name} {program.state} {program.detail}".rstrip())

    return tell
