"""Which cells a run of the laboratory has, in which order, and how long they take, about. Pure.

Repetitions come outermost: a run that is broken off has the others of its cells equally often.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from queueapp.bench import profiles
from queueapp.bench.profiles import Profile
from queueapp.bench.profiles.profile import LEAST_LOAD, MOST_LOAD
from queueapp.bench.results.cells import Dispatch, Setting
from queueapp.bench.workloads import KINDS, Workload
from queueapp.errors import DuctorError
from queueapp.policies.registry import DIRECT, POLICIES

ALL = "all"
DISPATCHES = ("direct", "scheduled", "none")
USUAL_WORKERS = 2
LEAST_LEASE_MS = 100
MOST_WORKERS = 64
PATIENCE_S = 60.0
PATIENCE = 3.0
"""Times what a cell needs at best, beside `PATIENCE_S`: the default of `--timeout`."""


class InvalidPlan(DuctorError, ValueError):
    """A run of the laboratory that cannot be."""

    code = "invalid_plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arranged:
    """A cell that is to be run."""

    policy: str
    dispatch: Dispatch
    workload: str
    load: float | None
    """None: the profile's."""
    repetition: int
    seed: int
    fail_seed: int

    @property
    def name(self) -> str:
        """For people."""
        load = "" if self.load is None else f" {self.load:g}x"
        return f"{self.policy} {self.dispatch} {self.workload}{load}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is run: the profile, with all that was asked for instead, and what is crossed."""

    profile: Profile
    """Its slots are those of all workers together, its repetitions and seed those of the run."""
    policies: Sequence[str]
    workloads: Sequence[str]
    dispatches: Sequence[Dispatch]
    loads: Sequence[float | None] = (None,)
    workers: int = USUAL_WORKERS
    fail_seed: int | None = None
    """Of the first repetition's dice; None: as the workload's."""
    timeout_s: float | None = None

    @property
    def slots(self) -> int:
        """Of each worker."""
        return self.profile.run.slots // self.workers

    def cells(self) -> Iterator[Arranged]:
        run = self.profile.run
        fail_seed = run.seed if self.fail_seed is None else self.fail_seed
        for repetition in range(1, run.repetitions + 1):
            for load in self.loads:
                for workload in self.workloads:
                    for dispatch in self.dispatches:
                        for policy in self.policies:
                            if not why_not(policy, dispatch):
                                yield Arranged(
                                    policy=policy,
                                    dispatch=dispatch,
                                    workload=workload,
                                    load=load,
                                    repetition=repetition,
                                    seed=run.seed + repetition - 1,
                                    fail_seed=fail_seed + repetition - 1,
                                )

    def left_out(self) -> list[str]:
        """A sentence for each combination that cannot be."""
        pairs = [(policy, dispatch) for dispatch in self.dispatches for policy in self.policies]
        return [reason for policy, dispatch in pairs if (reason := why_not(policy, dispatch))]

    def setting(self, cell: Arranged, workload: Workload) -> Setting:
        profile = self.profile
        return Setting(
            policy=cell.policy,
            dispatch=cell.dispatch,
            workload=workload.name,
            profile=profile.name,
            seed=cell.seed,
            repetition=cell.repetition,
            jobs=len(workload.jobs),
            load=workload.load,
            slots=profile.run.slots,
            workers=self.workers,
            execution=profile.run.execution,
            starving_ms=profile.run.starving_ms,
            tenants=workload.tenants,
            big=workload.big,
            workload_digest=workload.digest(),
            failures=profile.failures,
            limits=profile.limits,
        )

    def needs_s(self, workload: Workload, cpus: int) -> float:
        """How long a cell takes at best: until the last job comes, or until the slots have done the work."""
        run, failures = self.profile.run, self.profile.failures
        at_once = min(run.slots, cpus) if run.execution == "cpu" else run.slots
        work_us = sum(job.service_us for job in workload.jobs) / (1 - min(failures.lost, 0.9))
        ends_us = max(job.at_us + job.service_us for job in workload.jobs)
        repeats_ms = failures.lease_ms + failures.backoff_ms if failures else 0
        return max(ends_us, work_us / at_once) / 1_000_000 + repeats_ms / 1000

    def patience_s(self, workload: Workload, cpus: int) -> float:
        """From the first job on; then the cell has timed out."""
        if self.timeout_s is not None:
            return self.timeout_s
        failures = self.profile.failures
        repeats_s = failures.attempts * (failures.lease_ms + failures.backoff_ms) / 1000
        return PATIENCE_S + PATIENCE * self.needs_s(workload, cpus) + repeats_s


class Workloads:
    """The workloads of a plan, each made once for all cells of a repetition."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._seed: int | None = None
        self._made: dict[tuple[str, float | None], Workload] = {}

    def of(self, cell: Arranged) -> Workload:
        if self._seed != cell.seed:
            self._seed, self._made = cell.seed, {}
        key = (cell.workload, cell.load)
        if key not in self._made:
            self._made[key] = self._plan.profile.workload(cell.workload, seed=cell.seed, load=cell.load)
        return self._made[key]


def why_not(policy: str, dispatch: str) -> str:
    """Why a policy cannot be dispatched in this way; "" when it can."""
    if dispatch == "none":
        return "" if policy == "fifo" else f"{policy} with none: nobody chooses there, jobs run as they come; only fifo"
    if dispatch == "direct" and policy not in DIRECT:
        return f"{policy} with direct: a policy in Python needs a leader that chooses; only scheduled"
    return ""


def plan(options: Mapping[str, Any]) -> Plan:
    """The plan of a command line. Raises InvalidPlan, or InvalidProfile for what is wrong with the profile."""
    profile = profiles.load(options["profile"])
    run, failures = profile.run, profile.failures
    workers, slots = spread(run.slots, options["workers"], options["slots"])
    failures = replace(
        failures,
        failing=_given(options["fail_rate"], failures.failing),
        lost=_given(options["fail_before_ack_rate"], failures.lost),
    )
    if failures.failing + failures.lost > 1:
        raise InvalidPlan(
            f"fail-rate is {failures.failing:g} and fail-before-ack-rate {failures.lost:g}: give rates that do not "
            "exceed 1 together."
        )
    if failures.lease_ms < LEAST_LEASE_MS:
        raise InvalidPlan(
            f"failures.lease_ms of the profile is {failures.lease_ms}: workers hold leases of {LEAST_LEASE_MS} ms at "
            "least, give so much."
        )
    run = replace(
        run,
        jobs=_given(options["jobs"], run.jobs),
        seed=_given(options["seed"], run.seed),
        slots=workers * slots,
        execution=_given(options["exec"], run.execution),
        repetitions=_given(options.get("repetitions"), run.repetitions),
    )
    made = Plan(
        profile=replace(profile, run=run, failures=failures),
        policies=parted("scheduler", options["scheduler"], sorted(POLICIES)),
        workloads=parted("workload", options["workload"], list(KINDS)),
        dispatches=cast("list[Dispatch]", parted("dispatch", options["dispatch"], list(DISPATCHES))),
        loads=rates(options["loads"]) if options.get("loads") else (options.get("load"),),
        workers=workers,
        fail_seed=options["fail_seed"],
        timeout_s=options["timeout"],
    )
    if next(made.cells(), None) is None:
        raise InvalidPlan(f"There is nothing to run: {'. '.join(made.left_out())}. Choose another dispatch or policy.")
    return made


def parted(option: str, text: str, known: Sequence[str]) -> list[str]:
    """The names of `a,b` or `all`, each once. Raises InvalidPlan for one that does not exist."""
    found = list(known) if text == ALL else list(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in found:
        if name not in known:
            raise InvalidPlan(f"{option} names {name!r}: give some of {', '.join(known)}, or {ALL}.")
    return found


def rates(text: str) -> list[float]:
    """Loads of `0.5,1`, each once, in the order given. Raises InvalidPlan for what is none."""
    found: dict[str, float] = {}
    for part in text.split(","):
        try:
            load = float(part)
        except ValueError:
            load = 0.0
        if not LEAST_LOAD <= load <= MOST_LOAD:
            raise InvalidPlan(
                f"loads has {part.strip()!r}: give numbers from {LEAST_LOAD:g} to {MOST_LOAD:g} with "
                "commas between them, such as 0.5,1,2."
            )
        found.setdefault(f"{load:.3g}", load)  # cells are named so, and their names must differ
    return list(found.values())


def spread(total: int, workers: int | None, slots: int | None) -> tuple[int, int]:
    """How many workers with how many slots each. What is not given comes from the profile's slots, `total`."""
    if workers is None:
        workers = USUAL_WORKERS if slots is not None or total % USUAL_WORKERS == 0 else 1
    if slots is None:
        slots, left = divmod(total, workers)
        if left or not slots:
            raise InvalidPlan(
                f"workers is {workers}, and the profile has {total} slots, which cannot be spread over them evenly: "
                "give --slots, those of each worker."
            )
    return workers, slots


def _given(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value
