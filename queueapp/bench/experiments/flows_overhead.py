"""What a flow costs between two steps: from the end of one body to the beginning of the next, and where it goes.

A worker runs in this process, and runs of one chain follow each other, in turn matched (the next body begins in a free
slot of the process that ended the one before) and queued (nothing is offered to this process: each step goes through
the store, and the worker, which is idle, is woken and leases it, as one in another process would).

The parts of the time between two bodies: what is recorded (the report of the step's end, the tick, the change and its
commands, up to the commit), the commit, and the relay until the next body begins. Promised is the whole without its
commit, which is the database's and the disk's.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from prometheus_client import REGISTRY

from flows import RunHandle, models
from queueapp.bench.flow_work import CHAIN, LEAST_MS, chain
from queueapp.bench.harness import Progress, Report
from queueapp.bench.listening import heard
from queueapp.bench.statistics import median, percentiles
from queueapp.bench.worker_thread import worker_thread
from queueapp.producer import matching

SLOTS = 4
WARM = 3
"""So many runs of each kind come first and are not counted."""
WITHIN_S = 60.0
KINDS = {"matched": "in the process", "queued": "through the queue"}
MOST_MS = {"matched": 1.0, "queued": 10.0}
"""Half of the steps begin within this time, the commit taken out."""
READS = "SELECT"
BEGINS = "BEGIN"


@dataclass(slots=True)
class Timeline:
    """What each thread asked of the database, and when."""

    queries: dict[int, list[tuple[float, float, str, bool]]] = field(default_factory=dict)
    commits: dict[int, list[tuple[float, float]]] = field(default_factory=dict)

    def queried(self, sql: str, in_transaction: bool, begun_s: float, ended_s: float) -> None:
        word = sql.split(maxsplit=1)[0]
        self.queries.setdefault(threading.get_ident(), []).append((begun_s, ended_s, word, in_transaction))

    def committed(self, begun_s: float, ended_s: float) -> None:
        self.commits.setdefault(threading.get_ident(), []).append((begun_s, ended_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """One body that ran, and when; seconds."""

    thread: int
    began_s: float
    ended_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """From one body to the next; milliseconds."""

    whole: float
    record: float
    """The report, the tick and what it writes, up to the commit."""
    begin: float
    """Of it: until the transaction had begun, which on SQLite waits for whoever writes."""
    commit: float
    relay: float

    @property
    def net(self) -> float:
        """Without the commit."""
        return self.whole - self.commit


def run(report: Report, progress: Progress, *, rounds: int, steps: int) -> None:
    """`rounds` runs of `steps` steps of each kind, in turn."""
    bodies: dict[str, list[list[Body]]] = {kind: [] for kind in KINDS}
    timeline, matched = Timeline(), 0.0
    with heard(timeline), worker_thread(CHAIN, slots=SLOTS):
        for number in range(rounds + WARM):
            for kind in KINDS:
                before = _matches()
                with _offered(kind == "matched"):
                    found = _once(steps)
                if number >= WARM:
                    bodies[kind].append(found)
                    matched += (_matches() - before) if kind == "matched" else 0
            progress.show(f"  {number:,} of {rounds + WARM:,} runs of each kind, one after another")
    for kind in KINDS:
        _tell(report, progress, kind, [one for run in bodies[kind] for one in passages(run, timeline)])
    report.figures["matched_pct"] = 100 * matched / (rounds * steps)
    _tell_queries(report, progress, bodies["matched"], timeline)


def passages(run: Sequence[Body], timeline: Timeline) -> Iterator[Passage]:
    """Between each two bodies of a run, of which none runs beside another. Raises LookupError for a commit that nobody
    heard. It is that of another thread where one still had the turn, and so made the tick."""
    commits = sorted(commit for found in timeline.commits.values() for commit in found)
    for one, following in pairwise(run):
        begun_s, ended_s = commits[bisect_left(commits, (one.ended_s, 0.0))]
        if ended_s > following.began_s:
            raise LookupError("A step began before the end of the one before it was committed.")
        queries = timeline.queries[one.thread]
        first = queries[bisect_left(queries, (one.ended_s, 0.0, "", False))]
        yield Passage(
            whole=(following.began_s - one.ended_s) * 1000,
            record=(begun_s - one.ended_s) * 1000,
            begin=(first[1] - one.ended_s) * 1000 if first[2] == BEGINS else 0.0,
            commit=(ended_s - begun_s) * 1000,
            relay=(following.began_s - ended_s) * 1000,
        )


def counts(runs: Sequence[Sequence[Body]], timeline: Timeline) -> tuple[float, float]:
    """(statements, transactions that write) of a step, in all threads: medians over the runs, of which none may run
    beside another. A step that ends while the one before is still being relayed has a tick more."""
    asked = sorted(query for queries in timeline.queries.values() for query in queries if query[2] != BEGINS)
    alone = [query[0] for query in asked if query[2] != READS and not query[3]]
    moments = [query[0] for query in asked]
    writes = sorted([*alone, *(begun_s for commits in timeline.commits.values() for begun_s, _ in commits)])

    def of_step(run: Sequence[Body], found: Sequence[float]) -> float:
        between = bisect_left(found, run[-1].ended_s) - bisect_left(found, run[0].ended_s)
        return between / (len(run) - 1)

    return median([of_step(run, moments) for run in runs]), median([of_step(run, writes) for run in runs])


def judge(report: Report) -> None:
    """One sentence for each kind that is slower than promised."""
    for kind, words in KINDS.items():
        half = report.figures[f"{kind}_net_ms_p50"]
        if half is None or not half <= MOST_MS[kind]:
            report.missed.append(
                f"Half of the steps that begin {words} do so {half:.2f} ms after the one before, the commit taken out; "
                f"at most {MOST_MS[kind]:g} ms are promised."
            )


def _once(steps: int) -> list[Body]:
    """One run, from its start to its end."""
    handle: RunHandle = chain(CHAIN, steps).using(tenant="runs").start(LEAST_MS)
    handle.wait(timeout=WITHIN_S)
    rows = models.StepRun.objects.filter(run_id=handle.id).order_by("step")
    outputs: list[Any] = [*rows.values_list("output", flat=True)]
    return [Body(**output) for output in outputs]


@contextmanager
def _offered(offered: bool) -> Iterator[None]:
    """Whether jobs may begin in this process."""
    channels: Mapping[str, Any] = {} if offered else {CHAIN: matching._channels[CHAIN]}
    matching.close_channels(channels)
    try:
        yield
    finally:
        matching.open_channels(channels)


def _matches() -> float:
    return REGISTRY.get_sample_value("ductor_syncmatch_total", {"pool": CHAIN, "outcome": "hit"}) or 0.0


def _tell(report: Report, progress: Progress, kind: str, found: Sequence[Passage]) -> None:
    net, net_most = percentiles([one.net for one in found], 50, 99)
    half, most = percentiles([one.whole for one in found], 50, 99)
    parts = {part: median([getattr(one, part) for one in found]) for part in ("record", "begin", "commit", "relay")}
    report.figures |= {
        f"{kind}_net_ms_p50": net,
        f"{kind}_net_ms_p99": net_most,
        f"{kind}_ms_p50": half,
        f"{kind}_ms_p99": most,
        **{f"{kind}_{part}_ms_p50": value for part, value in parts.items()},
    }
    progress.say(
        f"  {KINDS[kind]:<17} {net:6.2f} ms p50, {net_most:.2f} ms p99 from body to body without the commit "
        f"(at most {MOST_MS[kind]:g} promised); with it {half:.2f} and {most:.2f}"
    )
    progress.say(
        f"  {'':<17} p50 of the parts: record {parts['record']:.2f} (until the transaction has begun "
        f"{parts['begin']:.2f}), commit {parts['commit']:.2f}, relay {parts['relay']:.2f} ms"
    )


def _tell_queries(report: Report, progress: Progress, runs: Sequence[Sequence[Body]], timeline: Timeline) -> None:
    statements, writes = counts(runs, timeline)
    report.figures |= {"queries_per_step": statements, "transactions_per_step": writes}
    progress.say(f"  {statements:g} statements a step, in {writes:g} transactions that write")
