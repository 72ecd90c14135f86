"""`bench simulate`: its plan, its figures, its rows, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from queueapp.bench.catalogue import EXPERIMENTS
from queueapp.bench.experiments.simulation_plan import Plan
from queueapp.bench.intervals import change
from queueapp.policies.registry import POLICIES


@pytest.fixture
def simulated(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """What the command writes."""

    def run(*words: str) -> dict[str, Any]:
        file = tmp_path / "figures.json"
        call_command("bench", "simulate", *words, "--json", str(file))
        written: dict[str, Any] = json.loads(file.read_text())
        return written

    return run


def test_only_the_plan_as_it_is_by_default_is_judged() -> None:
    assert [name for name in POLICIES if Plan(policy="all").judged(name)] == ["wfq", "tiered"]
    assert Plan(policy="wfq").judged("wfq")
    for other in (
        Plan(policy="wfq", load=(2.0,)),
        Plan(policy="wfq", jobs=100),
        Plan(policy="wfq", seeds=1),
        Plan(policy="wfq", weight={"atlas": 2.0}),
        Plan(policy="wfq", workload="uniform"),
        Plan(policy="wfq", profile="quick"),
    ):
        assert not other.judged("wfq")


def test_the_command_offers_the_plan_of_the_test() -> None:
    defaults = {option.key: option.default for option in EXPERIMENTS["simulate"].options}
    assert Plan(**defaults) == Plan(policy="tiered")


def test_simulate_needs_no_server_and_writes_figures_and_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"{number}.json" for number in range(2)]
    for file in files:
        options = ("--policy", "wfq", "--load", "1.25", "--jobs", "300", "--seeds", "2", "--json", str(file))
        call_command("bench", "simulate", *options)
    first, second = (json.loads(file.read_text()) for file in files)
    figures = first["figures"]
    assert figures["jobs_per_s"] > 0
    assert figures["small_p95_wait_ratio"] > 1
    assert figures["small_p95_wait_ratio_min"] <= figures["small_p95_wait_ratio"]
    assert figures["big_p95_latency_ratio"] <= figures["big_p95_latency_ratio_max"]
    assert {"big_mean_latency_ratio", "ideal_big_p95_latency_ratio", "fifo_small_p95_wait_ms"} <= figures.keys()
    assert (first["run"]["server"], first["run"]["policy"], first["run"]["seed"]) == (None, "wfq", 42)
    assert [(row["seed"], row["policy"]) for row in first["rows"]] == [
        (seed, policy) for seed in (42, 43) for policy in ("fifo", "small_first", "wfq")
    ]
    # All but the speed of this machine is the same again.
    assert {**figures, "jobs_per_s": 0} == {**second["figures"], "jobs_per_s": 0}
    assert first["rows"] == second["rows"]
    told = capsys.readouterr().out
    for words in ("small p95 wait ms", "p99 ms", "Jain", "± 95 % (Student), no warm-up left out"):
        assert words in told


def test_another_policy_or_seed_has_another_digest(tmp_path: Path) -> None:
    found = set()
    for words in (("--policy", "wfq"), ("--policy", "tiered"), ("--policy", "wfq", "--seed", "43")):
        file = tmp_path / "figures.json"
        call_command("bench", "simulate", "--jobs", "300", "--seeds", "1", *words, "--json", str(file))
        found.add(json.loads(file.read_text())["figures"]["digest"])
    assert len(found) == 3
    assert max(found) < 2**53, "a reader of JSON keeps it exactly"


def test_nothing_to_compare_is_null(tmp_path: Path) -> None:
    """One job waits for nothing: a ratio of two zeros is no number."""
    file = tmp_path / "figures.json"
    call_command("bench", "simulate", "--policy", "fifo", "--jobs", "1", "--seeds", "1", "--json", str(file))
    written = json.loads(file.read_text())
    assert written["figures"]["small_p95_wait_ratio"] is None
    assert len(written["rows"]) == 2


def test_several_policies_stand_beside_each_other(simulated: Callable[..., dict[str, Any]]) -> None:
    found = simulated("--policy", "all", "--jobs", "300", "--seeds", "6")
    figures, others = found["figures"], [name for name in sorted(POLICIES) if name != "fifo"]
    assert [row["policy"] for row in found["rows"][:10]] == ["fifo", "small_first", *others]
    for name in POLICIES:
        for figure in ("latency_p95_ms", "throughput_per_s", "jain_service", "starved"):
            assert figures[f"{name}_{figure}"] >= 0
            assert figures[f"{name}_{figure}_half_width"] >= 0
        assert figures[f"{name}_small_p95_wait_ratio"] >= 1
        assert 0 <= figures[f"{name}_shift_median"] <= figures[f"{name}_shift_max"] < 1
        assert figures[f"{name}_latency_p95_ms_worst"] >= figures[f"{name}_latency_p95_ms"]
        assert figures[f"{name}_throughput_per_s_worst"] <= figures[f"{name}_throughput_per_s"]


def test_a_cell_tells_all_its_figures_and_what_they_come_from(simulated: Callable[..., dict[str, Any]]) -> None:
    found = simulated("--workload", "heavy_tailed", "--profile", "quick", "--seeds", "1", "--policy", "edf")
    assert [row["policy"] for row in found["rows"]] == ["fifo", "edf"], "no flood, no ideal"
    row = found["rows"][1]
    assert {
        "seed",
        "slots",
        "load",
        "jobs",
        "warm_up_jobs",
        "profile",
        "failures",
        "limits",
        "workload_digest",
    } <= row.keys()
    assert {"makespan_s", "throughput_per_s", "utilisation", "jain_service", "jain_count", "dead"} <= row.keys()
    assert list(row["tenants"]) == ["atlas", "birch", "cedar", "dahlia", "elm"]
    assert list(row["priorities"]) == ["0", "1", "2", "3", "4"]
    assert {"jobs", "latency_p99_ms", "wait_max_ms", "miss_rate", "starved", "service_s"} <= row["tenants"][
        "elm"
    ].keys()
    assert (row["all"]["jobs"], row["all"]["latency_p999_ms"]) == (400, None)
    assert (found["run"]["jobs"], found["run"]["slots"], found["run"]["seeds"]) == (400, 8, 1)
    assert "small_p95_wait_ratio" not in found["figures"]


def test_a_recorded_workload_is_replayed(simulated: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    jobs = [{"at_us": 1_000 * number, "tenant": "abb"[number % 3], "service_us": 20_000} for number in range(60)]
    trace.write_text("\n".join(map(json.dumps, [{"ductor_trace": 1}, *jobs])))
    found = simulated("--trace", str(trace), "--slots", "2")
    assert [(row["policy"], row["workload"], row["jobs"]) for row in found["rows"]] == [
        (name, "trace", 60) for name in ("fifo", "small_first", "tiered")
    ]
    assert (found["run"]["workload"], found["run"]["jobs"], found["run"]["seeds"]) == ("trace", 60, 1)
    assert found["rows"][0]["makespan_s"] == 0.601, "the second slot had nothing in the first millisecond"
    assert simulated("--trace", str(trace), "--jobs", "6")["rows"][0]["jobs"] == 6
    failing = simulated("--trace", str(trace), "--profile", "failure")
    assert len({row["digest"] for row in failing["rows"] if row["policy"] == "fifo"}) == 3, "seeds vary what fails"


def test_what_if(simulated: Callable[..., dict[str, Any]]) -> None:
    """A heavier tenant waits less, more slots are less busy, a ceiling is not passed."""

    def row(*words: str) -> dict[str, Any]:
        found: dict[str, Any] = simulated("--jobs", "1000", "--seeds", "1", *words)["rows"][-1]
        return found

    plain, heavy = row("--workload", "uniform"), row("--workload", "uniform", "--weight", "elm=4")
    assert heavy["tenants"]["elm"]["wait_p50_ms"] < plain["tenants"]["elm"]["wait_p50_ms"] / 2
    assert heavy["limits"] == {"elm": {"weight": 4.0, "ceiling": None}}
    more = row("--slots", "32", "--workload", "uniform", "--profile", "full")
    assert (more["slots"], more["utilisation"] < 0.7) == (32, True)
    held = row("--ceiling", "atlas=4,elm=2")
    assert held["limits"] == {"atlas": {"weight": 1.0, "ceiling": 4}, "elm": {"weight": 1.0, "ceiling": 2}}
    assert held["tenants"]["atlas"]["service_s"] <= 4 * held["makespan_s"]
    assert held["makespan_s"] > 2 * plain["makespan_s"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--policy", "wfq,fare"), "'fare' is no policy: give some of aging, drr, .* or all"),
        (("--policy", ""), "'' is no policy"),
        (("--profile", "fool"), "profile is 'fool', which cannot be read"),
        (("--weight", "atlas"), "'atlas' is no TENANT=N, such as acme=2"),
        (("--weight", "atlas=0"), "'0' is no number from 0.001 to 1e"),
        (("--ceiling", "atlas=x"), "'x' is no whole number from 1 to 100000"),
        (("--ceiling", "a b=1"), "'a b=1' is no TENANT=N"),
        (("--weight", "acme=2"), "weight names 'acme', which sends nothing here: give one of atlas, birch, "),
        (("--trace", "none"), "none cannot be read"),
        (("--trace", "none", "--load", "2"), "load is 2, but none has a load of its own: leave --load out"),
    ],
)
def test_what_cannot_be_simulated_is_refused_by_value(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(CommandError, match=told):
        call_command("bench", "simulate", *words)


def test_c167_a_run_repeats_its_spread_shows_and_a_fifth_is_told_from_nothing(
    simulated: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """C167: averages only, no warm-up, one run: conclusions were not repeatable."""
    profiles = {}
    for name, least, most in (("base", 40, 60), ("slower", 48, 72)):
        profiles[name] = tmp_path / f"{name}.toml"
        profiles[name].write_text(
            f"[run]\njobs = 500\nrepetitions = 5\n[arrivals]\nrate_per_s = 200\n"
            f"[durations]\nleast_ms = {least}\nmost_ms = {most}\n"
        )

    def latencies(name: str, seed: int) -> list[float]:
        found = simulated("--profile", str(profiles[name]), "--policy", "fifo", "--seed", str(seed))
        assert {"seed", "seeds", "profile", "ductor", "revision", "python", "command"} <= found["run"].keys()
        assert found["figures"]["latency_mean_ms_half_width"] > 0, "the spread is shown"
        return [row["all"]["latency_mean_ms"] for row in found["rows"] if row["policy"] == "fifo"]

    base = latencies("base", 1)
    assert latencies("base", 1) == latencies("base", 1) == base
    others = latencies("base", 101)
    assert others != base
    assert not change(base, others).detected, "other seeds are no change"
    assert change(base, latencies("slower", 1)).detected
    assert change(base, latencies("slower", 101)).detected, "nor do they hide one"
