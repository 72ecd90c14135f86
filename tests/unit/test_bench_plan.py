"""Which cells a run of the laboratory has: what is crossed, in which order, with which seeds, and what is refused."""

from __future__ import annotations

import io
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class

from queueapp.bench import profiles
from queueapp.bench.catalogue import EXPERIMENTS
from queueapp.bench.command import BenchCommand
from queueapp.bench.dispatching import WAYS
from queueapp.bench.experiments import matrix
from queueapp.bench.harness import Progress, Report
from queueapp.bench.live.laboratory import TimeLeft, span
from queueapp.bench.live.plan import (
    DISPATCHES,
    MOST_WORKERS,
    PATIENCE_S,
    InvalidPlan,
    Plan,
    Workloads,
    plan,
    rates,
    spread,
)
from queueapp.bench.live.processes import Dice, Serving
from queueapp.policies.registry import DIRECT, POLICIES
from tools import setup
from tools.environment import ROOT

LIVE = ("run", "matrix", "sweep")


def given(bench: str = "matrix", **more: Any) -> dict[str, Any]:
    """The options of a command line that says no more than this."""
    return {option.key: option.default for option in EXPERIMENTS[bench].options} | more


def own_profile(directory: Path, text: str) -> str:
    file = directory / "own.toml"
    file.write_text(text)
    return str(file)


def names(made: Plan) -> list[str]:
    workloads = Workloads(made)
    return [made.setting(cell, workloads.of(cell)).name for cell in made.cells()]


def test_a_run_that_is_broken_off_has_its_cells_equally_often() -> None:
    options = given("sweep", scheduler="fifo,wfq", workload="uniform", loads="0.5,2", jobs=20, repetitions=2)
    assert names(plan(options)) == [
        f"{policy}-direct-uniform-{load}x-{repetition}"
        for repetition in (1, 2)
        for load in ("0.5", "2")
        for policy in ("fifo", "wfq")
    ]


def test_each_repetition_has_the_next_seed_and_its_cells_the_same_jobs() -> None:
    made = plan(given(scheduler="fifo,wfq", workload="uniform,bursty", jobs=20, repetitions=2, fail_seed=7))
    assert [(cell.seed, cell.fail_seed) for cell in made.cells()] == [(42, 7)] * 4 + [(43, 8)] * 4
    workloads = Workloads(made)
    settings = [made.setting(cell, workloads.of(cell)) for cell in made.cells()]
    digests = Counter(setting.workload_digest for setting in settings)
    assert set(digests.values()) == {2}, "the policies of a repetition run the same jobs, and nobody else does"
    own = profiles.load("quick").workload("bursty", seed=43, jobs=20)
    assert settings[-1].workload_digest == own.digest()
    assert plan(given()).fail_seed is None
    assert next(plan(given(seed=3)).cells()).fail_seed == 3


def test_what_is_crossed_is_all_that_can_be_together() -> None:
    made = plan(given(scheduler="all", workload="uniform", dispatch="all", repetitions=1))
    found = {(cell.policy, cell.dispatch) for cell in made.cells()}
    want = {(policy, "direct") for policy in DIRECT} | {(policy, "scheduled") for policy in POLICIES}
    assert found == want | {("fifo", "none")}
    assert len(made.left_out()) == len(POLICIES) * len(WAYS) - len(found)
    assert "drr with direct: a policy in Python needs a leader that chooses; only scheduled" in made.left_out()
    assert set(DISPATCHES) == set(WAYS)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"scheduler": "drr,lottery"}, "There is nothing to run: drr with direct"),
        ({"scheduler": "wfq", "dispatch": "none"}, "only fifo"),
        ({"workers": 3}, "workers is 3, and the profile has 8 slots"),
        ({"workers": 16}, "workers is 16"),
        ({"fail_rate": 0.7, "fail_before_ack_rate": 0.4}, "fail-rate is 0.7 and fail-before-ack-rate 0.4"),
        ({"loads": "1,0"}, "loads has '0'"),
        ({"workload": "bursti"}, "workload names 'bursti'"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_with_the_value_and_the_remedy(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidPlan, match=told):
        plan(given(**options))


def test_leases_that_no_worker_holds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidPlan, match=r"failures\.lease_ms of the profile is 99"):
        plan(given(profile=own_profile(tmp_path, "[failures]\nlease_ms = 99")))


def test_one_cell_is_refused_where_policy_and_dispatch_cannot_be_together(tmp_path: Path) -> None:
    options = given("run", scheduler="lottery")
    with pytest.raises(InvalidPlan, match="lottery with direct"):
        matrix.run_one(Report(bench="run", run={}), Progress(io.StringIO()), tmp_path, options)


@pytest.mark.parametrize(
    ("total", "workers", "slots", "found"),
    [
        (8, None, None, (2, 4)),
        (7, None, None, (1, 7)),
        (8, 4, None, (4, 2)),
        (8, None, 3, (2, 3)),
        (16, 4, 4, (4, 4)),
        (8, 3, 5, (3, 5)),
    ],
)
def test_slots_are_spread_over_workers(total: int, workers: int | None, slots: int | None, found: object) -> None:
    assert spread(total, workers, slots) == found


def test_what_is_asked_for_stands_before_the_profile(tmp_path: Path) -> None:
    text = "[failures]\nlost = 0.5\nlease_ms = 700\n[limits.elm]\nweight = 3\nceiling = 2"
    asked: dict[str, Any] = {
        "jobs": 30,
        "workers": 3,
        "slots": 5,
        "exec": "cpu",
        "fail_before_ack_rate": 0.0,
        "fail_rate": 0.25,
    }
    made = plan(given(profile=own_profile(tmp_path, text), workload="uniform", load=2.0, **asked))
    cell = next(made.cells())
    setting = made.setting(cell, Workloads(made).of(cell))
    assert (setting.jobs, setting.workers, setting.slots, made.slots, setting.execution) == (30, 3, 15, 5, "cpu")
    assert (setting.failures.failing, setting.failures.lost, setting.failures.lease_ms) == (0.25, 0.0, 700)
    assert (setting.limits["elm"].weight, setting.limits["elm"].ceiling) == (3, 2)
    assert (setting.load, setting.repetition) == (2.0, 1)


def test_a_sweep_has_every_load_once() -> None:
    made = plan(given("sweep", scheduler="fifo", workload="uniform", loads="0.5,1,1.0,3", jobs=20, repetitions=1))
    assert names(made) == [f"fifo-direct-uniform-{load}x-1" for load in ("0.5", "1", "3")]
    assert rates("2, 0.75,2.0001") == [2.0, 0.75], "cells are named by three digits of their load"
    assert plan(given("sweep")).loads == [0.5, 0.75, 1, 1.25, 1.5, 2, 3]


def test_every_worker_of_every_repetition_has_dice_of_its_own() -> None:
    seeds = [
        words[words.index("--fail-seed") + 1]
        for seed in (42, 43)
        for number in range(MOST_WORKERS)
        for words in [Dice(failing=0.1, lost=0.2, seed=seed).words(number)]
    ]
    assert len(set(seeds)) == 2 * MOST_WORKERS
    assert Dice(failing=0.1, lost=0.2).words(0)[:4] == ["--fail-rate", "0.1", "--fail-before-ack-rate", "0.2"]
    assert Dice(seed=9).words(0) == []


class Stood:
    """As much of a process as is asked here: it lives, or it is gone."""

    def __init__(self, code: int | None) -> None:
        self.poll = lambda: code
        self.running = code is None


@pytest.mark.parametrize(
    ("workers", "scheduler", "works"), [([None, None], None, True), ([None, 1], None, False), ([None, None], -9, False)]
)
def test_a_cell_whose_process_is_gone_measures_nothing(
    tmp_path: Path, workers: list[int | None], scheduler: int | None, works: bool
) -> None:
    log = tmp_path / "worker-0.log"
    log.write_text("out of memory")
    processes: Any = {"workers": [Stood(code) for code in workers], "scheduler": Stood(scheduler)}
    serving = Serving(**processes, logs=[log])
    assert serving.goes_on() == works
    with nullcontext() if works else pytest.raises(RuntimeError, match="out of memory"):
        serving.require()


def test_a_cell_is_given_more_time_than_it_needs() -> None:
    made = plan(given(scheduler="fifo", workload="uniform", jobs=400, load=4.0))
    [cell, *_] = made.cells()
    workload = Workloads(made).of(cell)
    work_s = sum(job.service_us for job in workload.jobs) / 1_000_000
    assert made.needs_s(workload, cpus=2) == pytest.approx(work_s / 8)
    assert made.patience_s(workload, cpus=2) > PATIENCE_S + work_s / 8
    computing = plan(given(scheduler="fifo", workload="uniform", jobs=400, load=4.0, exec="cpu"))
    assert computing.needs_s(workload, cpus=2) == pytest.approx(work_s / 2), "more slots than processors"
    assert plan(given(timeout=5.0)).patience_s(workload, cpus=2) == 5.0


def test_what_is_left_is_told_by_what_the_cells_before_took() -> None:
    made = plan(given(scheduler="fifo,wfq", workload="uniform", jobs=40, repetitions=2))
    workloads = Workloads(made)
    needs_s = made.needs_s(workloads.of(next(made.cells())), cpus=2)
    left = TimeLeft(made, workloads, cpus=2)
    assert left.cells == 4
    left.took(needs_s + 2)
    left.took(needs_s + 4)
    assert left.seconds == pytest.approx(2 * (needs_s + 3))
    assert [span(seconds) for seconds in (45.2, 600, 7_200)] == ["45 s", "10 min", "2.0 h"]


# -- the command line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bench", LIVE)
def test_the_command_starts_itself_again_with_the_same_options(bench: str) -> None:
    more = {"fail_before_ack_rate": 0.2, "exec": "cpu", "no_plots": True, "results": "there", "workers": 4}
    options = given(bench, scheduler="fifo", **more)
    words = BenchCommand(bench=bench, options=options).arguments()
    parsed = vars(load_command_class("queueapp", "bench").create_parser("manage.py", "bench").parse_args(words[1:]))
    assert {name: parsed[name] for name in options} == options


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["matrix", "--scheduler", "fifo,walk"], "scheduler names 'walk'"),
        (["matrix", "--dispatch", "central"], "dispatch names 'central'"),
        (["sweep", "--loads", "1,many"], "loads has 'many'"),
        (["run", "--scheduler", "fifo,wfq"], "invalid choice"),
        (["run", "--profile", "quik"], "profile is 'quik'"),
        (["run", "--repetitions", "2"], "unrecognized arguments"),
        (["matrix", "--loads", "1,2"], "ambiguous|unrecognized arguments"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_starts(words: list[str], told: str) -> None:
    with pytest.raises(CommandError, match=told):
        call_command("bench", *words)


def test_make_bench_quick_is_a_matrix_of_twenty_cells() -> None:
    parser = load_command_class("queueapp", "bench").create_parser("manage.py", "bench")
    made = plan(vars(parser.parse_args(["matrix", *setup.QUICK])))
    assert {cell.policy for cell in made.cells()} == {"fifo", "priority", "edf", "wfq", "tiered"}
    assert {cell.workload for cell in made.cells()} == {"uniform", "bursty", "heavy_tailed", "multi_tenant"}
    assert len(list(made.cells())) == 20
    assert "bench-quick" in setup.VERBS
    assert "bench-quick" in (ROOT / "Makefile").read_text()
