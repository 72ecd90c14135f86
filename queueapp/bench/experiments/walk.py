"""`bench walk`: whether a dispatch takes longer with many tenants, with many waiting jobs, with blocked tenants.

Three comparisons, each of two pools that differ in one thing. A dispatch is one job that `check_and_lease` leases, in
calls of `want` jobs: no more than the few tenants are, so that a call visits as many tenants in either pool. (A larger
call takes several jobs of each of few tenants, and what is done once for a tenant and call is shared by them.)

Between measurements the leased jobs are completed and each tenant gets as many new ones: both pools stay as they are.
The two are measured in turn, in changing order; what is compared are the medians of the server's own time in the
script, and of the time that a caller sees beside it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import redis

from queueapp.bench.experiments.memory import TASK, payload, settled_memory
from queueapp.bench.harness import Progress, Report
from queueapp.bench.server_cost import Meter
from queueapp.bench.statistics import median, ratio
from queueapp.store import shards
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.ids import new_id
from queueapp.store.records import Completed, LeasedJob, NewJob
from queueapp.store.store import Store

FEW_TENANTS = 10
FEW_JOBS = 1_000
JOBS_A_TENANT = 2
"""Waiting jobs of each of many tenants: a tenant whose head is leased still stands in the walk."""
CALLS = 10
"""Calls of one measurement."""
WARM_UP = 3
"""Rounds that are not counted."""
LEASE_MS = 3_600_000
RUN_MS = 5
PAGE = 5_000
SCOPES_A_CALL = 250
LIMITS = {"tenants": 1.5, "backlog": 1.5, "blocked": 1.3}
"""What is promised: the longer median is at most this many times the shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is compared with 10 tenants, with 1,000 jobs and with no blocked tenant, under which policy."""

    policy: str = "tiered"
    tenants: int = 100_000
    jobs: int = 1_000_000
    blocked: int = 10_000
    rounds: int = 60
    want: int = 10


@dataclass(slots=True, kw_only=True)
class Side:
    """One pool of a comparison, and what was measured on it, for one dispatch."""

    name: str
    store: Store
    calls: int = 0
    server_us: list[float] = field(default_factory=list)
    wall_us: list[float] = field(default_factory=list)
    commands: list[float] = field(default_factory=list)

    def lease(self, want: int) -> Sequence[LeasedJob]:
        self.calls += 1
        return self.store.check_and_lease("walk", self.calls, want=want, begin=want, lease_ms=LEASE_MS).jobs


def run(report: Report, client: redis.Redis, progress: Progress, sizes: Sizes) -> None:
    """The three comparisons, one after the other, each on an empty server."""
    client.config_set("auto-aof-rewrite-percentage", 0)  # a child that rewrites the file would be measured, too
    progress.say(
        f"  {sizes.policy}, {sizes.want} jobs a call, {sizes.rounds} rounds of {CALLS} calls; medians, per dispatch"
    )
    compare = _Comparison(report, client, progress, sizes)
    waiting = max(FEW_JOBS, JOBS_A_TENANT * sizes.tenants)
    with compare.of("tenants", FEW_TENANTS, sizes.tenants) as (few, many):
        compare.load(few, FEW_TENANTS, waiting)
        compare.load(many, sizes.tenants, waiting)
    with compare.of("backlog", FEW_JOBS, sizes.jobs) as (few, many):
        compare.load(few, FEW_TENANTS, FEW_JOBS)
        compare.load(many, FEW_TENANTS, sizes.jobs)
    with compare.of("blocked", 0, sizes.blocked) as (none, some):
        compare.block(some, sizes.blocked)
        for side in (none, some):
            compare.load(side, FEW_TENANTS, FEW_JOBS)


class _Comparison:
    def __init__(self, report: Report, client: redis.Redis, progress: Progress, sizes: Sizes) -> None:
        self._report, self._client, self._progress, self._sizes = report, client, progress, sizes

    @contextmanager
    def of(self, what: str, little: int, much: int) -> Iterator[tuple[Side, Side]]:
        """Two empty pools to load; then they are measured, and their figures are in the report."""
        sides = self._side(what, little), self._side(what, much)
        yield sides
        settled_memory(self._client)  # tables grow in steps behind the last write
        rounds = self._sizes.rounds
        for number in range(-WARM_UP, rounds):
            for side in sides if number % 2 else reversed(sides):
                self._measure(side, counted=number >= 0)
            self._progress.show(f"  {what}: {max(0, number + 1)} of {rounds} rounds")
        self._tell(what, *sides)
        self._client.flushall()  # the server is ours, and the next pools are to be measured alone
        shards.record_again()

    def _side(self, what: str, much: int) -> Side:
        store = shards.store(f"walk-{what}-{much}")
        store.configure(1, pool=PoolConf(policy=self._sizes.policy))
        return Side(name=f"{what}_{much}", store=store)

    def load(self, side: Side, tenants: int, count: int) -> None:
        """`count` waiting jobs, the tenants in turn."""
        names = [f"customer-{number:06d}" for number in range(tenants)]
        for first in range(0, count, PAGE):
            side.store.enqueue(_jobs(names[number % tenants] for number in range(first, min(first + PAGE, count))))
            self._progress.show(f"  {side.name}: {min(first + PAGE, count):,} of {count:,} jobs loaded")

    def block(self, side: Side, tenants: int) -> None:
        """Tenants at their ceiling: each has one slot, one job that runs in it, and one that waits for it."""
        names = [f"blocked-{number:06d}" for number in range(tenants)]
        for first in range(0, tenants, SCOPES_A_CALL):
            page = names[first : first + SCOPES_A_CALL]
            side.store.configure(1, scopes=[ScopeLimits(tenant=name, max_in_flight=1) for name in page])
            side.store.enqueue(_jobs([*page, *page]))
            self._progress.show(f"  {side.name}: {first + len(page):,} of {tenants:,} tenants loaded")
        held = 0
        while leased := side.lease(100):
            held += len(leased)
        if held != tenants:
            raise RuntimeError(f"{held:,} jobs of {tenants:,} tenants with one slot each are leased.")

    def _measure(self, side: Side, *, counted: bool) -> None:
        want, jobs = self._sizes.want, list[LeasedJob]()
        meter, begun = Meter(self._client), time.perf_counter()
        for _ in range(CALLS):
            jobs += side.lease(want)
        seconds, cost = time.perf_counter() - begun, meter.read()
        if len(jobs) != CALLS * want:
            raise RuntimeError(f"{side.name}: {len(jobs):,} jobs were leased where {CALLS * want:,} were asked for.")
        if counted:
            side.server_us.append(cost.us_per(len(jobs)))
            side.wall_us.append(seconds * 1_000_000 / len(jobs))
            side.commands.append(cost.commands_per(len(jobs)))
        for first in range(0, len(jobs), 100):
            page = jobs[first : first + 100]
            side.store.complete([Completed(id=job.id, attempts=job.attempts, run_ms=RUN_MS) for job in page])
        side.store.enqueue(_jobs(job.tenant for job in jobs))

    def _tell(self, what: str, less: Side, more: Side) -> None:
        figures = self._report.figures
        for side in (less, more):
            figures[f"{side.name}_server_us"] = median(side.server_us)
            figures[f"{side.name}_wall_us"] = median(side.wall_us)
            figures[f"{side.name}_commands"] = median(side.commands)
        found = ratio(median(more.server_us), median(less.server_us))
        wall = ratio(median(more.wall_us), median(less.wall_us))
        figures |= {f"ratio_{what}": found, f"wall_ratio_{what}": wall}
        self._progress.say(
            f"  {what:<8}{median(less.server_us):8.1f} → {median(more.server_us):5.1f} µs of server time: {found:.2f} "
            f"times (at most {LIMITS[what]:g}); {median(less.commands):.1f} → {median(more.commands):.1f} commands; "
            f"{median(less.wall_us):.1f} → {median(more.wall_us):.1f} µs for the caller: {wall:.2f} times"
        )
        if not found <= LIMITS[what]:
            self._report.missed.append(
                f"From {less.name} to {more.name} a dispatch takes {found:.2f} times as long; "
                f"at most {LIMITS[what]:g} times are promised."
            )


def _jobs(tenants: Iterable[str]) -> list[NewJob]:
    """A job of each name, of cost that is not declared, as a host's would be."""
    return [
        NewJob(id=new_id(), task=TASK, tenant=tenant, payload=payload(number), fingerprint=f"{number:016x}")
        for number, tenant in enumerate(tenants)
    ]
