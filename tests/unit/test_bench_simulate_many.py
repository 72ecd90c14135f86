"""`bench simulate` with several workloads and loads, costs, shards, and a directory of results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from queueapp.bench import plots
from queueapp.bench.experiments.simulation_plan import InvalidPlan, Plan
from queueapp.bench.results.reading import read

Simulated = Callable[..., dict[str, Any]]


@pytest.fixture
def simulated(tmp_path: Path) -> Simulated:
    """What the command writes."""

    def run(*words: str) -> dict[str, Any]:
        file = tmp_path / "figures.json"
        call_command("bench", "simulate", *words, "--json", str(file))
        written: dict[str, Any] = json.loads(file.read_text())
        return written

    return run


# -- workloads and loads -----------------------------------------------------------------------------------------


def test_several_workloads_and_loads_stand_before_the_figures_of_each(
    simulated: Simulated, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--policy", "priority,tiered", "--profile", "quick", "--jobs", "200", "--seeds", "2")
    found = simulated(*words, "--workload", "uniform,bursty", "--load", "0.5,2")
    figures = found["figures"]
    assert (figures["cells"], len(found["rows"])) == (24, 24)
    assert [(row["workload"], row["load"]) for row in found["rows"][::6]] == [
        *[("uniform", 0.5), ("uniform", 2)],
        *[("bursty", 0.5), ("bursty", 2)],
    ]
    assert (found["run"]["workload"], found["run"]["load"]) == (["uniform", "bursty"], [0.5, 2])
    for prefix in ("uniform_0.5x_", "uniform_2x_", "bursty_0.5x_", "bursty_2x_"):
        for name in ("fifo_latency_p99_ms", "tiered_throughput_per_s", "spread_latency_p99", "spread_throughput"):
            assert figures[prefix + name] >= 0
    assert "tiered_latency_p99_ms" not in figures
    assert figures["uniform_2x_spread_latency_p99"] > figures["uniform_0.5x_spread_latency_p99"]
    alone = simulated(*words, "--workload", "bursty", "--load", "2")["figures"]
    both = {name.removeprefix("bursty_2x_"): value for name, value in figures.items() if name.startswith("bursty_2x_")}
    assert both == {name: alone[name] for name in both}, "a scenario is the same whatever stands beside it"
    told = capsys.readouterr().out
    assert told.count("by what part the greatest mean of the policies exceeds the least") == 1
    assert "\n  bursty_2x " in told


def test_one_load_of_several_workloads_needs_no_load_in_its_names(simulated: Simulated) -> None:
    figures = simulated("--workload", "all", "--jobs", "60", "--seeds", "1")["figures"]
    assert {"churn_latency_p50_ms", "heavy_tailed_fifo_latency_p50_ms", "multi_tenant_small_p95_wait_ratio"} <= set(
        figures
    )


# -- what if -------------------------------------------------------------------------------------------------------


def test_costs(simulated: Simulated) -> None:
    """The workload declares them: without, estimates take their place; with exact ones nothing changes."""

    def digests(*words: str) -> list[str]:
        given = ("--workload", "mixed_cost", "--policy", "wfq,edf,edf:latest_start", "--jobs", "400", "--seeds", "1")
        rows = simulated(*given, "--profile", "quick", *words)["rows"]
        assert [row["policy"] for row in rows] == ["fifo", "wfq", "edf", "edf_latest_start"]
        return [row["digest"] for row in rows]

    declared, estimated = digests(), digests("--costs", "estimated")
    assert declared == digests("--costs", "exact")
    assert [one == other for one, other in zip(declared, estimated, strict=True)] == [True, False, True, False]


def test_the_lowest_priority_stands_beside_the_others(simulated: Simulated) -> None:
    found = simulated("--policy", "priority", "--workload", "uniform", "--profile", "full", "--seeds", "1")
    row = found["rows"][-1]
    assert (row["lowest"]["jobs"], row["above"]["jobs"]) == (
        row["priorities"]["0"]["jobs"],
        4000 - row["priorities"]["0"]["jobs"],
    )
    ratio = row["lowest"]["latency_p95_ms"] / row["above"]["latency_p95_ms"]
    assert found["figures"]["lowest_p95_latency_ratio"] == pytest.approx(ratio, abs=1e-3)
    assert found["figures"]["fifo_lowest_p95_latency_ratio"] == pytest.approx(1, abs=0.05)
    assert "lowest_p95_latency_ratio" not in simulated("--jobs", "100", "--seeds", "1")["figures"], "one priority"


# -- shards --------------------------------------------------------------------------------------------------------


def test_shards_stand_beside_one_shard(simulated: Simulated, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--policy", "tiered", "--jobs", "1000", "--seeds", "2")
    one, split = simulated(*words), simulated(*words, "--shards", "2", "--shard-slots", "split")
    assert [(row["policy"], row["shards"]) for row in split["rows"][:4]] == [
        *[("fifo", 1), ("small_first", 1)],
        *[("tiered", 1), ("tiered_sharded", 2)],
    ]
    same = {name: value for name, value in one["figures"].items() if name not in ("cells", "digest", "jobs_per_s")}
    assert same.items() <= split["figures"].items(), "one shard has the figures that it has alone"
    figures = split["figures"]
    assert figures["sharded_utilisation"] < 0.7 < figures["utilisation"], "slots of one shard idle"
    assert figures["sharding_utilisation_ratio"] == pytest.approx(
        figures["sharded_utilisation"] / figures["utilisation"], abs=0.02
    )
    assert figures["sharding_big_p95_latency_ratio"] > 1.5
    assert {"sharded_small_p95_wait_ms", "sharding_small_p95_wait_ratio", "sharding_jain_entitled_ratio"} <= set(
        figures
    )
    assert (
        "2 shards, slots split: medians over the seeds of multiples of what it is on one shard"
        in capsys.readouterr().out
    )
    shared = simulated(*words, "--shards", "2")["figures"]
    assert shared["sharding_utilisation_ratio"] == pytest.approx(1, abs=0.01), "shared slots work for all shards"


def test_several_policies_on_shards_have_their_names_before(simulated: Simulated) -> None:
    figures = simulated("--policy", "fifo,wfq", "--jobs", "200", "--seeds", "1", "--shards", "3")["figures"]
    assert {"fifo_sharded_latency_p95_ms", "wfq_sharded_latency_p95_ms", "wfq_sharding_latency_p99_ratio"} <= set(
        figures
    )


# -- results -------------------------------------------------------------------------------------------------------


def test_results_hold_every_cell_with_all_its_jobs(
    simulated: Simulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plots, "installed", lambda: False)
    words = ("--policy", "wfq", "--workload", "multi_tenant,uniform", "--profile", "failure", "--jobs", "80")
    found = simulated(*words, "--seeds", "2", "--shards", "2", "--results", str(tmp_path / "run"))
    written = read(tmp_path / "run")
    rows = found["rows"]
    assert len(written.cells) == len(rows) == 2 * (4 + 3)
    for cell, row in zip(written.cells, rows, strict=True):
        assert (cell.setting.policy, cell.setting.workload, cell.setting.seed) == (
            row["policy"],
            row["workload"],
            row["seed"],
        )
        assert cell.setting.dispatch == "simulated"
        assert len(list(written.outcomes(cell))) == 80
    assert "no plots: Plots are drawn by matplotlib" in capsys.readouterr().out


def test_results_are_drawn_where_matplotlib_is(simulated: Simulated, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    simulated("--jobs", "40", "--seeds", "1", "--profile", "quick", "--results", str(tmp_path / "run"))
    assert (tmp_path / "run" / "report.html").stat().st_size > 0
    assert list((tmp_path / "run" / "plots").glob("*.svg"))


# -- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--workload", "uniform,tidy"), "'tidy' is no workload: give some of uniform, .* or all"),
        (("--load", "1,x"), "'x' is no number from 0.01 to 100"),
        (("--load", ""), "'' is no number"),
        (("--costs", "guessed"), "invalid choice: 'guessed'"),
        (("--shards", "0"), "'0' is no whole number from 1 to 1000"),
        (
            ("--shards", "20", "--shard-slots", "split"),
            "20 shards cannot split 16 slots: give --slots 20 or more, fewer --shards, or --shard-slots shared",
        ),
    ],
)
def test_what_cannot_be_simulated_is_refused_by_value(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(CommandError, match=told):
        call_command("bench", "simulate", *words)


def test_more_shards_than_slots_are_fine_while_slots_are_shared() -> None:
    assert len(Plan(policy="wfq", shards=20).scenarios()) == 1
    with pytest.raises(InvalidPlan):
        Plan(policy="wfq", shards=20, shard_slots="split").scenarios()
