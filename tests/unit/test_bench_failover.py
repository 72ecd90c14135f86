"""`bench failover`: what a lease predicts, how trials become rows and figures, what is judged. No process is struck."""

from __future__ import annotations

import io
import json
import math
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from queueapp.bench import OWN
from queueapp.bench.experiments import failover, failover_windows, lost_worker
from queueapp.bench.experiments.failover import Dispatch, Plan, between_terms, lease_of, longest_gap, stale_writes
from queueapp.bench.experiments.failover_trials import ARMS, Trial, arms_of, figures, missed, told, ttls_of
from queueapp.bench.experiments.failover_windows import Lease, Window, predicted
from queueapp.bench.harness import Progress, Report
from queueapp.bench.scheduler_process import SchedulerProcess
from queueapp.errors import LeaseHeld
from queueapp.scheduler import leadership
from queueapp.store.scripts import source

TWO = Lease(ttl_ms=2_000, renewal_ms=666, retry_ms=1_000)
TEN = Lease(ttl_ms=10_000, renewal_ms=3_333, retry_ms=1_000)
PROMISED = ("crash_ms_p50", "crash_ms_max", "graceful_ms_p50", "pause_ms_p50", "stale_writes", "lost", "recorded_twice")


def trial(arm: str, outage_ms: float | None, lease: Lease | None = TWO, **more: Any) -> Trial:
    counts = {} if lease is None else {"natural_gap_ms": 9.0, "lost": 0, "recorded_twice": 0, "stale_writes": 0}
    return Trial(arm=arm, number=1, lease=lease, outage_ms=outage_ms, jobs=100, **{**counts, **more})


# -- windows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arm", "presence", "two", "ten"),
    [
        ("none", "auto", None, None),
        ("direct", "auto", None, None),
        ("worker", "auto", None, None),
        ("graceful", "auto", (0, 30), (0, 30)),
        ("graceful", "off", (0, 30), (0, 30)),
        ("crash", "auto", (25, 170), (25, 170)),
        ("crash", "off", (1_334, 3_000), (6_667, 11_000)),
        ("pause", "auto", (1_334, 3_000), (6_667, 11_000)),
        ("pause", "off", (1_334, 3_000), (6_667, 11_000)),
        ("single", "auto", (math.inf, math.inf), (math.inf, math.inf)),
    ],
)
def test_a_lease_predicts_how_long_nobody_dispatches(
    arm: str, presence: str, two: tuple[float, float] | None, ten: tuple[float, float] | None
) -> None:
    for lease, window in ((TWO, two), (TEN, ten)):
        found = predicted(arm, replace(lease, presence=presence))
        assert (found and (found.low_ms, found.high_ms)) == (window and pytest.approx(window))


def test_a_lease_that_ends_before_anybody_looks_is_what_is_waited_for() -> None:
    short = Lease(ttl_ms=30, renewal_ms=10, retry_ms=50)
    assert predicted("crash", short) == Window(low_ms=20, high_ms=80)


def test_a_window_holds_its_ends_and_only_where_nobody_should_follow_what_never_came() -> None:
    window, never = Window(low_ms=10, high_ms=20), Window(low_ms=math.inf, high_ms=math.inf)
    assert [window.holds(outage_ms) for outage_ms in (9.9, 10, 20, 20.1, None)] == [False, True, True, False, False]
    assert [never.holds(outage_ms) for outage_ms in (10_000.0, None)] == [False, True]


def test_windows_are_made_of_the_products_own_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    named = dict(re.findall(r"^local (AGAIN_MS|GONE_MS) = (\d+)$", source("lead.lua"), re.M))
    assert {name: float(value) for name, value in named.items()} == {
        "AGAIN_MS": failover_windows.AGAIN_MS,
        "GONE_MS": failover_windows.GONE_MS,
    }

    class Watched:
        def lead_acquire(self, *arguments: object, **more: object) -> None:
            error = LeaseHeld()
            error.detail = (60_000, 1)
            raise error

    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    standby = leadership.Leadership(
        "p",
        Watched(),  # type: ignore[arg-type]  # as much of it as is asked here
        "me",
        ttl_ms=5_000,
        renew_ms=1_000,
        retry_ms=1_000,
        channel=lambda: "p",
        clock=lambda: 7.0,
    )
    standby.tick()
    assert standby.next_at == pytest.approx(7.0 + leadership.PROBE_S * failover_windows.LATEST)


# -- what is asked for -----------------------------------------------------------------------------------------------


def test_arms_and_leases_are_lists() -> None:
    assert arms_of("all") == list(ARMS) == ["none", "graceful", "crash", "single", "pause", "direct", "worker"]
    assert arms_of("pause, crash,pause") == ["pause", "crash"]
    assert ttls_of("2,5.5, 10,2") == [2.0, 5.5, 10.0]


@pytest.mark.parametrize("text", ["freeze", "crash,", "", "crash,Pause"])
def test_an_arm_that_does_not_exist_is_refused_by_name(text: str) -> None:
    wrong = next(part for part in text.split(",") if part not in ARMS)
    with pytest.raises(ValueError, match=f"^{wrong!r} is no arm: give some of none, graceful, crash"):
        arms_of(text)


@pytest.mark.parametrize("text", ["0.1", "61", "2,x", "nan", "2,,5"])
def test_a_lease_that_cannot_be_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no length of a lease: give seconds from 0\.2 to 60"):
        ttls_of(text)


def test_a_plan_without_leases_takes_the_one_in_force() -> None:
    [lease] = Plan().leases()
    assert lease == lease_of({})
    assert lease.presence == "auto"
    two, ten = Plan(ttls="2,10", presence="off").leases()
    assert (two.ttl_ms, two.renewal_ms, two.presence) == (2_000, 666, "off")
    assert (ten.ttl_ms, ten.renewal_ms, ten.presence) == (10_000, 3_333, "off")
    assert lease_of(ten.settings) == ten


def test_a_scheduler_is_told_its_lease_and_others_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, str] = {}

    def started(command: list[str], *, env: dict[str, str], **more: object) -> None:
        given.update(env)

    monkeypatch.setenv(OWN, '{"LEADER_TTL_SECONDS": 33}')
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", started)
        SchedulerProcess("plain", tmp_path)
        assert json.loads(given[OWN]) == {}
        SchedulerProcess("own", tmp_path, own=TWO.settings)
    program = (
        "import django; django.setup(); from queueapp.conf import settings as s; "
        "print(s.leader_ttl_ms, s.leader_renewal_ms, s.leader_retry_ms, s.leader_presence)"
    )
    environment = {**os.environ, **given, "DUCTOR_GROUND": str(tmp_path), "REDIS_URL": "unix:///nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert done.stdout.split() == ["2000", "666", "1000", "auto"], done.stderr


# -- what the store says ---------------------------------------------------------------------------------------------


def dispatches(*stamps: tuple[int, int]) -> list[Dispatch]:
    return [Dispatch(at_ms=at_ms, epoch=epoch) for at_ms, epoch in stamps]


def test_an_outage_is_from_the_last_dispatch_of_a_term_to_the_first_of_another() -> None:
    assert between_terms(dispatches((10, 1), (14, 1), (99, 2), (200, 2), (300, 3))) == 85
    assert between_terms(dispatches((10, 1), (14, 1))) is None
    assert between_terms([]) is None


def test_a_gap_counts_when_it_ends_within_a_second_of_the_blow() -> None:
    found = dispatches((0, 1), (2_000, 1), (2_110, 1), (2_150, 1), (3_000, 1), (6_000, 1))
    assert longest_gap(found, 2_100) == 850
    assert longest_gap([], 100) == 0


def test_a_write_is_stale_when_another_term_has_dispatched_before() -> None:
    assert stale_writes(dispatches((1, 1), (2, 1), (3, 2), (4, 1), (5, 2), (6, 1))) == 2
    assert stale_writes(dispatches((1, 1), (2, 2))) == 0
    assert stale_writes(dispatches((1, 0), (2, 0))) == 0


ROW = (
    "arm ttl_s presence trial outage_ms censored limit_ms predicted_low_ms predicted_high_ms inside natural_gap_ms "
    "jobs lost recorded_twice stale_writes"
)

# -- rows and figures ------------------------------------------------------------------------------------------------


def test_every_row_has_the_same_keys_and_says_when_it_is_censored() -> None:
    rows = [trial(arm, None if arm == "single" else 80.0).row() for arm in ARMS[:-1]]
    rows.append(trial("worker", 400.0, None).row())
    assert {tuple(row) for row in rows} == {tuple(ROW.split())}
    by_arm = {row["arm"]: row for row in rows}
    assert [row["arm"] for row in rows if row["censored"]] == ["single"]
    assert (by_arm["single"]["outage_ms"], by_arm["single"]["limit_ms"]) == (None, 4_000)
    assert (by_arm["single"]["inside"], by_arm["crash"]["inside"], by_arm["pause"]["inside"]) == (True, True, False)
    assert (by_arm["none"]["inside"], by_arm["none"]["predicted_high_ms"]) == (None, None)
    assert [by_arm["worker"][name] for name in ("ttl_s", "presence", "limit_ms", "lost")] == [None] * 4


def test_figures_of_arms_that_were_not_run_are_null_and_never_left_out() -> None:
    found = figures([trial("crash", 80.0), trial("crash", 120.0, stale_writes=1, natural_gap_ms=11.0)], [TWO])
    assert set(PROMISED) < found.keys()
    assert (found["crash_ms_p50"], found["crash_ms_p90"], found["crash_ms_max"]) == (100.0, 116.0, 120.0)
    assert (found["crash_trials"], found["crash_recovered"], found["crash_inside"], found["crash_jobs"]) == (
        2,
        2,
        2,
        200,
    )
    assert [found[f"crash_predicted_{end}_ms"] for end in ("low", "high")] == pytest.approx([25, 170])
    assert [found[name] for name in ("stale_writes", "lost", "recorded_twice", "natural_gap_ms")] == [1, 0, 0, 10.0]
    others = [name for name in found if name.partition("_")[0] in set(ARMS) - {"crash"}]
    assert len(others) == 6 * 13
    assert {found[name] for name in others} == {None}
    assert not [name for name in found if "_ttl" in name]
    only_worker = figures([trial("worker", 400.0, None)], [TWO])
    assert (only_worker["worker_ms_max"], only_worker["lost"], only_worker["natural_gap_ms"]) == (400.0, None, None)


def test_under_several_leases_each_has_its_own_figures_beside_those_of_all() -> None:
    trials = [
        trial("pause", 1_500.0),
        trial("pause", 3_100.0),
        trial("pause", 9_000.0, TEN),
        trial("worker", 9.0, None),
    ]
    found = figures(trials, [TWO, TEN])
    assert (found["pause_ms_p50"], found["pause_inside"], found["pause_trials"]) == (3_100.0, 2, 3)
    assert (found["pause_predicted_low_ms"], found["pause_predicted_high_ms"]) == (1_334, 11_000)
    assert (found["pause_ttl2_ms_max"], found["pause_ttl2_inside"]) == (3_100.0, 1)
    assert (found["pause_ttl10_ms_p50"], found["pause_ttl10_predicted_low_ms"]) == (9_000.0, 6_667)
    assert found["crash_ttl10_ms_p50"] is None
    assert not [name for name in found if name.startswith("worker_ttl")]


def test_a_censored_trial_counts_as_longer_than_any_other() -> None:
    trials = [trial("crash", outage_ms) for outage_ms in (80.0, None, 90.0)]
    found = figures(trials, [TWO])
    assert (found["crash_ms_p50"], found["crash_ms_p90"], found["crash_ms_max"]) == (90.0, None, None)
    assert (found["crash_recovered"], found["crash_inside"]) == (2, 2)
    assert figures(trials[:2], [TWO])["crash_ms_p50"] is None
    assert figures([trial("single", None)], [TWO])["single_inside"] == 1


def test_people_read_what_was_predicted_and_what_came_of_it() -> None:
    text = told([trial("pause", 1_500.0), trial("pause", None, lost=3)])
    assert "2 trials: median never, p90 never, worst never ms; predicted 1334 to 3000, 1 inside" in text
    assert "200 jobs, 3 lost, 0 recorded twice, 0 stale writes" in text
    assert "never recovered by itself; longest gap before 9 ms" in told([trial("single", None)])
    assert told([trial("worker", 400.0, None)]).endswith("median 400, p90 400, worst 400 ms")


# -- promises --------------------------------------------------------------------------------------------------------

OFF = replace(TWO, presence="off")


@pytest.mark.parametrize(
    ("trials", "sentences"),
    [
        ([trial("none", 900.0)], []),
        ([trial("crash", 150.0), trial("crash", 150.0), trial("crash", 500.0)], []),
        ([trial("crash", 151.0)], ["crash, lease of 2 s: the median outage is 151 ms; at most 150 ms"]),
        ([trial("crash", 1.0), trial("crash", 501.0, TWO), trial("crash", 1.0)], ["the worst outage is 501 ms"]),
        ([trial("crash", 151.0, TEN)], ["crash, lease of 10 s: the median"]),
        ([trial("crash", 4_000.0, OFF)], []),
        ([trial("crash", 4_001.0, OFF)], ["at most 4000 ms"]),
        ([trial("crash", 1.0), trial("crash", None)], ["after 1 of 2 blows nobody followed"]),
        ([trial("graceful", 30.0)], []),
        ([trial("graceful", 31.0)], ["at most 30 ms"]),
        ([trial("pause", 4_000.0)], []),
        ([trial("pause", 4_001.0)], ["at most 4000 ms"]),
        ([trial("direct", 100.0)], []),
        ([trial("direct", 101.0)], ["at most 100 ms"]),
        ([trial("direct", 101.0, natural_gap_ms=51.0)], []),
        ([trial("single", None)], []),
        ([trial("single", 70.0)], ["somebody dispatched although no scheduler was left"]),
        ([trial("worker", 1_500.0, None)], []),
        ([trial("worker", 1_501.0, None)], ["worker: the worst outage is 1501 ms; at most 1500 ms"]),
        ([trial("none", 4.0, lost=1)], ["1 jobs were lost, 0 recorded twice, 0 dispatched under an old term"]),
        ([trial("pause", 9.0, stale_writes=2)], ["0 jobs were lost, 0 recorded twice, 2 dispatched under an old term"]),
        ([trial("single", None, recorded_twice=1)], ["0 jobs were lost, 1 recorded twice"]),
    ],
)
def test_what_is_promised_is_judged_for_each_arm_and_lease(trials: list[Trial], sentences: list[str]) -> None:
    found = missed(trials)
    assert len(found) == len(sentences)
    assert all(part in text for part, text in zip(sentences, found, strict=True))


def test_each_arm_is_run_under_each_lease_and_the_worker_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, float]] = []

    class Struck:
        def __init__(self, *arguments: object) -> None: ...

        def arm(self, name: str, lease: Lease, trials: int) -> list[Trial]:
            ran.append((name, lease.ttl_s))
            return [trial(name, 200.0, lease)] * trials

        def end(self) -> None:
            ran.append(("end", 0))

    @contextmanager
    def nobody(*arguments: object, **more: object) -> Iterator[None]:
        yield

    monkeypatch.setattr(failover, "_Experiment", Struck)
    monkeypatch.setattr(failover, "worker", nobody)
    monkeypatch.setattr(lost_worker, "trials", lambda *arguments: [trial("worker", 300.0, None)])
    report = Report(bench="failover", run={})
    plan = Plan(arms="crash,worker,none", trials=2, ttls="2,10")
    failover.run(report, None, Progress(io.StringIO()), tmp_path, plan)  # type: ignore[arg-type]  # nobody is struck
    assert ran == [("crash", 2), ("none", 2), ("crash", 10), ("none", 10), ("end", 0)]
    assert [(row["arm"], row["ttl_s"]) for row in report.rows] == [
        *[("crash", 2)] * 2,
        *[("none", 2)] * 2,
        *[("crash", 10)] * 2,
        *[("none", 10)] * 2,
        ("worker", None),
    ]
    assert (report.figures["crash_trials"], report.figures["crash_ttl10_trials"]) == (4, 2)
    assert [text.partition(":")[0] for text in report.missed] == ["crash, lease of 2 s", "crash, lease of 10 s"]
