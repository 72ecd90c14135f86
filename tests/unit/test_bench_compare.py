"""`bench compare`: what differs beyond noise is marked with its direction, what is noise is not."""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from queueapp.bench import profiles
from queueapp.bench.results.cells import Cell
from queueapp.bench.results.comparing import FIGURES, Compared, Comparison, compare, notes
from queueapp.bench.results.comparison_tables import lines, markdown
from queueapp.bench.results.reading import read
from queueapp.bench.results.rows import InvalidResults
from queueapp.bench.results.simulated import cell_of
from queueapp.bench.simulate import simulate
from queueapp.policies.registry import POLICIES
from tests.cells import cell, outcome, write_run

QUICK = profiles.load("quick")


def measured(seeds: Sequence[int], *, day: int, slower: float = 1.0, load: float = 0.5) -> list[Cell]:
    """Cells as a machine would measure them: the seed decides the jobs, the day by how much the clock errs on each."""
    found = []
    for repetition, seed in enumerate(seeds, start=1):
        workload = QUICK.workload("heavy_tailed", seed=seed, load=load)
        noise = random.Random(f"{day}/{seed}")
        jobs = [
            replace(job, service_us=int(job.service_us * slower * noise.gauss(1, 0.02)) + noise.randrange(500))
            for job in workload.jobs
        ]
        ran = simulate(replace(workload, jobs=jobs), POLICIES["wfq"]())
        made = cell_of(workload, "wfq", ran, profile=QUICK, repetition=repetition)
        found.append(replace(made, setting=replace(made.setting, dispatch="direct", execution="sleep")))
    return found


def compared(tmp_path: Path, base: Sequence[Cell], other: Sequence[Cell]) -> Comparison:
    place = str(len(list(tmp_path.iterdir())))
    runs = [write_run(tmp_path / f"{place}{side}", cells) for side, cells in (("a", base), ("b", other))]
    return compare(read(runs[0]), read(runs[1]))


def figure(found: Comparison, name: str) -> Compared:
    return next(one for one in found.figures if one.figure == name)


@pytest.mark.parametrize("seeds", [(42, 43, 44), (7, 8, 9)])
def test_c167_a_fifth_slower_is_detected_and_no_change_is_not(tmp_path: Path, seeds: Sequence[int]) -> None:
    days = [measured(seeds, day=day) for day in range(3)]
    for base, other in ((0, 1), (0, 2), (1, 2)):
        same = compared(tmp_path, days[base], days[other])
        assert same.worse(5) == []
        assert len(same.marked) <= 2, same.marked
        assert same.by_chance == pytest.approx(0.05 * sum(one.change.half_width > 0 for one in same.figures))
        spread = figure(same, "latency_p50_ms").change
        assert (spread.count, spread.half_width > 0) == (3, True)
    slow = compared(tmp_path, days[0], measured(seeds, day=3, slower=1.2))
    assert [figure(slow, name).verdict for name in ("latency_mean_ms", "latency_p50_ms")] == ["worse", "worse"]
    assert 1.15 < figure(slow, "latency_p50_ms").change.mean < 1.3
    assert any("latency_p50_ms" in sentence for sentence in slow.worse(10))
    back = compared(tmp_path, measured(seeds, day=3, slower=1.2), days[0])
    assert figure(back, "latency_p50_ms").verdict == "better"
    assert back.worse(0) == []


def test_c163_less_is_worse_for_throughput_and_more_for_latency(tmp_path: Path) -> None:
    overloaded = compared(
        tmp_path, measured((1, 2, 3), day=0, load=1.5), measured((1, 2, 3), day=1, load=1.5, slower=1.3)
    )
    for name, direction in (("throughput_per_s", -1), ("latency_p95_ms", 1), ("jain_count", 0)):
        found = figure(overloaded, name)
        assert (found.change.mean > 1) - (found.change.mean < 1) == direction
        assert found.verdict == ("worse" if direction else "")
    assert figure(overloaded, "throughput_per_s").percent == pytest.approx(23, abs=4)


def cells(*ends_ms: int, **more: Any) -> list[Cell]:
    """A cell for each: its jobs end so long after they were to be sent."""
    return [
        cell(
            [outcome(number, ended_us=number * 10_000 + end * 1000) for number in range(1, 41)],
            setting={"seed": seed, "repetition": seed, **more},
        )
        for seed, end in enumerate(ends_ms, start=1)
    ]


def dead(count: int) -> list[Cell]:
    return [
        replace(one, outcomes=[replace(job, completed=job.number > count) for job in one.outcomes])
        for one in cells(55, 56, 57)
    ]


def test_what_was_none_and_is_some_is_a_difference(tmp_path: Path) -> None:
    found = figure(compared(tmp_path, dead(0), dead(5)), "dead")
    assert (found.kind, found.change.mean, found.verdict, found.percent) == ("difference", 5, "worse", float("inf"))
    assert not found.judged
    gone = figure(compared(tmp_path, dead(5), dead(0)), "dead")
    assert (gone.kind, gone.change.mean, gone.verdict, gone.percent) == ("ratio", 0, "better", 100)
    none = figure(compared(tmp_path, dead(0), dead(0)), "dead")
    assert (none.change.mean, none.verdict) == (0, "")
    assert [sentence for sentence in compared(tmp_path, dead(0), dead(5)).worse(50) if ": dead is 5" in sentence]


def test_cells_are_paired_by_seed_whatever_their_order(tmp_path: Path) -> None:
    base = cells(100, 200, 300, 400)
    other = [
        replace(one, setting=replace(one.setting, repetition=9 - one.setting.seed)) for one in cells(110, 220, 330)
    ]
    found = compared(tmp_path, base, list(reversed(other)))
    change = figure(found, "latency_p50_ms").change
    assert change.count == 3
    assert change.mean == pytest.approx(1.1)
    assert any("has 1 cells that the other has not" in note for note in notes(found))


def test_one_repetition_says_nothing_of_noise(tmp_path: Path) -> None:
    found = compared(tmp_path, cells(100), cells(200))
    assert (found.marked, found.by_chance) == ([], 0)
    assert any("nothing is marked" in note for note in notes(found))
    assert str(figure(found, "latency_p50_ms").change) == "2.000"


def test_runs_without_a_cell_in_common_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidResults, match=r"no policy, dispatch, workload, load and seed in common .* wfq, direct"):
        compared(tmp_path, cells(100), cells(100, policy="fifo"))


def test_what_else_differs_is_told(tmp_path: Path) -> None:
    base = write_run(tmp_path / "a", cells(100, 100))
    late = [
        replace(
            one, outcomes=[replace(job, sent_us=job.planned_us + 300_000) for job in one.outcomes[:-1]], timed_out=True
        )
        for one in cells(100, 110, slots=9, workload_digest="other")
    ]
    other = write_run(tmp_path / "b", late, identity={"revision": "def5678", "cpus": 4})
    found = compare(read(base), read(other))
    told = "\n".join(notes(found))
    for words in (
        "revision differs: abc1234, then def5678",
        "cpus differs: 2, then 4",
        "slots differs: 8, then 9",
        "the jobs are not the same for the same seed",
        "b has unfinished cells",
        "the sender was late, by 0 and 300 ms",
    ):
        assert words in told
    assert found.broken() == [
        f"wfq, direct, uniform, load 1.25, seed {seed}: it was not done in time; in the base it is not so."
        for seed in (1, 2)
    ]


def test_tables_mark_what_is_beyond_noise(tmp_path: Path) -> None:
    found = compared(tmp_path, cells(100, 101, 102), cells(200, 203, 204))
    table = "\n".join(lines(found))
    assert re.search(r"latency_p50_ms +2\.003 ± 0\.014!", table)
    assert re.search(r"utilisation +0\.\d+ ± 0\.\d+~", table)
    page = "\n".join(markdown(found))
    assert "2.003 ± 0.014 `!`" in page
    assert "5 of 13 figures differ beyond noise, 4 of them for the worse; about 0.3 would by chance alone." in page
    assert all(name in table for name in FIGURES)


def test_the_command_writes_every_form_and_fails_on_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = str(write_run(tmp_path / "a", cells(100, 101, 102)))
    other = str(write_run(tmp_path / "b", cells(120, 121, 123)))
    files = {name: tmp_path / f"out.{name}" for name in ("json", "csv", "markdown")}
    call_command("bench", "compare", base, other, *(f"--{name}={path}" for name, path in files.items()))
    written = json.loads(files["json"].read_text())
    figures = written["figures"]
    assert (figures["pairs"], figures["compared"]) == (3, len(FIGURES))
    assert figures["marked"] == figures["worse"] + figures["better"] + 1 == 5
    assert [row["figure"] for row in written["rows"]] == list(FIGURES)
    with files["csv"].open(newline="") as file:
        rows = {row["figure"]: row for row in csv.DictReader(file)}
    assert (rows["latency_p50_ms"]["verdict"], rows["latency_p99_ms"]["change"]) == ("worse", "")
    assert "would by chance alone" in capsys.readouterr().out
    assert files["markdown"].read_text().startswith("# a (A) and b (B)")
    call_command("bench", "compare", base, other, "--fail-on-worse", "25")
    with pytest.raises(SystemExit) as stopped:
        call_command("bench", "compare", base, other, "--fail-on-worse", "10")
    assert stopped.value.code == 1
    assert "latency_p50_ms is 121" in capsys.readouterr().err
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("bench", "compare", base, str(tmp_path / "nothing"))
