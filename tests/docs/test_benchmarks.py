"""What docs/benchmarks.md says of profiles and traces is what is read."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path

import pytest

from queueapp.bench import plots, profiles
from queueapp.bench.catalogue import EXPERIMENTS
from queueapp.bench.experiments.failover_trials import ARMS, Trial
from queueapp.bench.experiments.failover_windows import Lease
from queueapp.bench.experiments.simulation import cells
from queueapp.bench.experiments.simulation_plan import Plan
from queueapp.bench.harness import Progress, Report
from queueapp.bench.results import reading
from queueapp.bench.workloads import KINDS
from queueapp.bench.workloads.traces import read
from queueapp.policies.room import UNLIMITED

PAGE = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()


def block(language: str, holding: str) -> str:
    found: list[str] = [
        text for text in re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S) if holding in text
    ]
    assert len(found) == 1
    return found[0]


def test_the_profile_on_the_page_sets_every_field_to_its_default(tmp_path: Path) -> None:
    page, empty = tmp_path / "page.toml", tmp_path / "empty.toml"
    page.write_text(block("toml", "[run]"))
    empty.touch()
    shown, unset = profiles.load(str(page)), profiles.load(str(empty))
    assert (shown.run, shown.shape, shown.failures) == (unset.run, unset.shape, unset.failures)
    assert shown.limits == {"atlas": UNLIMITED}


def test_the_trace_on_the_page_is_one(tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_text(block("json", "ductor_trace"))
    assert [job.tenant for job in read(file, seed=1, slots=1).jobs] == ["acme", "globex"]


@pytest.mark.parametrize("name", [*KINDS, *profiles.NAMES])
def test_every_workload_and_profile_is_on_the_page(name: str) -> None:
    assert f"| `{name}` |" in PAGE


def test_every_option_of_simulate_is_on_the_page() -> None:
    for option in EXPERIMENTS["simulate"].options:
        assert f"`--{option.name}`" in PAGE


@pytest.mark.parametrize("bench", ["run", "matrix", "sweep"])
def test_every_option_of_the_laboratory_is_on_the_page(bench: str) -> None:
    assert [option.name for option in EXPERIMENTS[bench].options if f"`--{option.name}`" not in PAGE] == []


@pytest.mark.parametrize("bench", ["merge", "compare", "plot"])
def test_every_option_for_results_is_on_the_page(bench: str) -> None:
    options = [option.name for option in EXPERIMENTS[bench].options if not option.bare]
    assert [name for name in options if f"`--{name}`" not in PAGE] == []


def test_every_plot_is_on_the_page() -> None:
    assert [name for name in (*plots.OF_RUNS, *plots.OF_FILES) if f"`{name}`" not in PAGE] == []


def test_arms_options_and_rows_of_failover_are_as_on_the_page() -> None:
    assert [arm for arm in ARMS if f"| `{arm}` |" not in PAGE] == []
    assert [option.name for option in EXPERIMENTS["failover"].options if f"`--{option.name}" not in PAGE] == []
    lease = Lease(ttl_ms=2_000, renewal_ms=666, retry_ms=1_000)
    made = Trial(
        arm="single", number=1, lease=lease, natural_gap_ms=9, jobs=1132, lost=0, recorded_twice=0, stale_writes=0
    )
    row = {name: None if value == math.inf else value for name, value in made.row().items()}
    assert json.loads(block("json", '"arm"')) == row


def test_the_example_is_what_its_command_makes() -> None:
    """`results/example`: the same jobs, and the same runs of each, on any machine."""
    example = reading.read(Path(__file__).parents[2] / "results" / "example")
    [written] = example.manifest["runs"]
    plan = Plan(**{**written["options"], "results": None})
    report = Report(bench="simulate", run={})
    for scenario in plan.scenarios():
        cells(report, Progress(io.StringIO()), plan, scenario, plan.policies)
    made = {(row["policy"], row["workload"], row["seed"]): row["digest"] for row in report.rows}
    shown = {(row.setting.policy, row.setting.workload, row.setting.seed): row.digest for row in example.cells}
    assert example.finished
    assert shown == made
    assert written["identity"]["command"] in PAGE
