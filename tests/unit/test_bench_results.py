"""What a run leaves: it is read as it was written, cell by cell, with every field looked at."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from queueapp.bench import harness, profiles
from queueapp.bench.outcomes import Outcome, Times
from queueapp.bench.results import columns, manifest
from queueapp.bench.results.cells import Cell
from queueapp.bench.results.reading import read
from queueapp.bench.results.rows import InvalidResults, neutral, original
from queueapp.bench.results.simulated import cell_of
from queueapp.bench.results.writing import Writer
from queueapp.bench.simulate import simulate
from queueapp.policies.registry import POLICIES
from queueapp.policies.room import Limits
from queueapp.policies.tokens import DispatchRate
from tests.cells import IDENTITY, PROFILE, cell, outcome, write_run


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def change_line(path: Path, line: int, change: Callable[[str], str]) -> None:
    lines = path.read_text().splitlines(keepends=True)
    lines[line - 1] = change(lines[line - 1])
    path.write_text("".join(lines))


def read_all(directory: Path) -> tuple[object, ...]:
    found = read(directory)
    return found.tenants, found.priorities, [found.outcomes(row) for row in found.cells]


def awkward_cells() -> list[Cell]:
    limits = {"acme": Limits(weight=2.5, ceiling=3, dispatch=DispatchRate(rate=5, period_ms=1_000, burst=2))}
    dead = ({"id": "x", "number": 3, "tenant": "acme", "attempts": 4, "reason": "failed", "error": '=cmd|" /C\n"'},)
    return [
        cell(),
        cell([], setting={"repetition": 2, "jobs": 5}, timed_out=True, lost=2, recorded_twice=1),
        cell(
            [
                outcome(1, completed=False, attempts=4, deadline_us=0),
                outcome(2, tenant="-5", lane="@mail", priority=-7),
            ],
            setting={"repetition": 3, "load": 1 / 3, "limits": limits, "big": "acme", "jobs": 3},
            dead_letters=list(dead),
            digest="d" * 64,
        ),
    ]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    cells = awkward_cells()
    found = read(write_run(tmp_path / "run", cells))
    assert [found.cell(row) for row in found.cells] == cells
    assert [row.state for row in found.cells] == ["complete", "timed_out", "unfinished"]
    assert found.cells[0].figures == columns.figures(cells[0], cells[0].summary())
    assert (found.bench, found.finished) == ("matrix", True)
    assert found.runs[0].options == {"policy": "fifo,wfq"}
    summary = cells[2].summary()
    assert {row.tenant: row.times.jobs for row in found.tenants if row.cell == found.cells[2].name} == {
        tenant: times.jobs for tenant, times in summary.tenants.items()
    }
    assert {row.priority for row in found.priorities if row.cell == found.cells[2].name} == {-7, 1}


def test_the_figures_of_few_jobs_and_of_none_are_no_numbers(tmp_path: Path) -> None:
    found = read(write_run(tmp_path / "run", awkward_cells()))
    assert math.isnan(found.cells[0].figures["latency_p99_ms"])
    assert math.isnan(found.cells[1].figures["throughput_per_s"])
    assert [row["latency_p99_ms"] for row in rows(tmp_path / "run" / "aggregate.csv")] == ["", "", ""]
    assert {row.tenant for row in found.tenants if row.cell == found.cells[1].name} == {"acme", "globex", "hush"}


def test_every_row_carries_the_run(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", awkward_cells())
    run = read(directory).runs[0].id
    tables = [directory / f"{name}.csv" for name in ("aggregate", "tenants", "priorities", "summary")]
    for path in [*tables, *(directory / "raw").iterdir()]:
        assert {row["run"] for row in rows(path)} <= {run}
    letters = list((directory / "dead_letters").iterdir())
    assert [path.stem for path in letters] == [awkward_cells()[2].setting.name]
    assert [one["run"] for one in json.loads(letters[0].read_text())] == [run]


def test_two_runs_never_share_an_id(tmp_path: Path) -> None:
    found = {read(write_run(tmp_path / name, [])).runs[0].id for name in ("a", "b", "c")}
    assert len(found) == 3


def test_a_run_that_is_broken_off_keeps_what_it_had(tmp_path: Path) -> None:
    first, second = cell(), cell(setting={"seed": 43, "repetition": 2})
    writer = Writer(tmp_path / "run", "matrix", IDENTITY, profile=PROFILE)
    writer.add(first)
    with pytest.raises(KeyboardInterrupt), writer:
        raise KeyboardInterrupt
    # The next cell had been begun: a whole row of one table, half of one of another.
    for name, columns_left in (("tenants", None), ("aggregate", 4)):
        path = tmp_path / "run" / f"{name}.csv"
        last = path.read_text().splitlines()[-1].replace(first.setting.name, second.setting.name)
        with path.open("a") as file:
            file.write(",".join(last.split(",")[:columns_left]))
    found = read(tmp_path / "run")
    assert not found.finished
    assert [found.cell(row) for row in found.cells] == [first]
    assert {row.cell for row in found.tenants} == {first.setting.name}


def test_a_finished_run_has_no_rows_of_cells_that_nobody_knows(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", [cell()])
    change_line(directory / "tenants.csv", 2, lambda line: line.replace("uniform", "other"))
    with pytest.raises(InvalidResults, match=r"tenants.csv, line 2: cell is 'wfq-direct-other-1.25x-1', which"):
        assert read(directory).tenants


def test_the_columns_are_all_that_is_known() -> None:
    assert set(columns.OUTCOME) == {one.name for one in fields(Outcome)}
    assert set(columns.TIMES) == {one.name for one in fields(Times)}
    assert set(cell().summary().figures()) <= set(columns.FIGURES)
    assert set(harness.identity(None)) == set(manifest.IDENTITY)


@pytest.mark.parametrize(
    ("name", "line", "change", "told"),
    [
        ("aggregate", 1, lambda text: text.replace("seed", "sead"), "line 1: there is no column 'seed'"),
        ("aggregate", 1, lambda text: text.rstrip() + ",more\n", "line 1: there is no such column as 'more'"),
        ("aggregate", 1, lambda text: text.replace("policy,dispatch", "dispatch,policy"), "not in their order"),
        ("aggregate", 2, lambda text: text.replace(",42,", ",43,"), "line 2: seed is 43: by the manifest it is 42"),
        ("aggregate", 2, lambda text: text.replace(",no,", ",maybe,"), "line 2: timed_out is 'maybe': give yes or no"),
        ("aggregate", 2, lambda text: text.replace(",no,", ",yes,"), "line 2: state is 'complete': .* 'timed_out'"),
        ("aggregate", 2, lambda text: text.replace("matrix-", "other-"), "line 2: run is 'other-"),
        ("aggregate", 2, lambda text: text * 2, "line 3: cell is 'wfq-.*': it was there before"),
        ("aggregate", 2, lambda text: "", "has no row of the cell 'wfq-direct-uniform-1.25x-1'"),
        ("aggregate", 2, lambda text: text.rstrip() + ",1\n", "line 2 has 44 fields: give 43"),
        ("tenants", 2, lambda text: text.replace(",20,", ",2_0,", 1), "line 2: jobs is '2_0': give a whole number"),
        ("tenants", 2, lambda text: text.replace(",5.0,", ",nan,", 1), "line 2: wait_p50_ms is 'nan': give a number"),
        ("raw/wfq-direct-uniform-1.25x-1", 2, lambda text: "", "has 39 rows, but aggregate.csv has 40 jobs less 0"),
        ("raw/wfq-direct-uniform-1.25x-1", 9, lambda text: text + '"', "cannot be read"),
    ],
)
def test_each_field_of_a_table_is_looked_at(
    tmp_path: Path, name: str, line: int, change: Callable[[str], str], told: str
) -> None:
    directory = write_run(tmp_path / "run", [cell()])
    change_line(directory / f"{name}.csv", line, change)
    with pytest.raises(InvalidResults, match=told):
        read_all(directory)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"ductor_results": 1', '"ductor_results": 2', "no manifest of form 1"),
        ('"finished": true', '"finished": 1', "finished is 1"),
        ('"seed": 42', '"seed": "42"', r"cells\[0\]: setting.seed is '42': give a whole number"),
        ('"seed": 42', '"seed": true', r"cells\[0\]: setting.seed is True: give a whole number"),
        ('"seed": 42', '"sead": 42', r"setting.sead is 42: there is no such field"),
        ('"seed": 42,', "", r"setting.seed is missing"),
        ('"load": 1.25', '"load": -1.25', "setting.load is -1.25: give a number from 0 on"),
        ('"load": 1.25', '"load": NaN', "NaN is no JSON"),
        ('"policy": "wfq"', '"policy": "../../wfq"', "name is 'wfq-direct.*': by the manifest"),
        ('"dispatch": "direct"', '"dispatch": "sideways"', "setting.dispatch is 'sideways': give one of direct, sch"),
        ('"failing": 0.0', '"failing": null', "setting.failures.failing is None: give a number"),
        ('"acme",', "7,", r"setting.tenants\[0\] is 7: give a text"),
        ('"state": "complete"', '"state": "good"', "state is 'good': give one of complete"),
        ('"run": "matrix-', '"run": "other-', "run is 'other-.*': give one of matrix-"),
        ('"limits": {}', '"limits": {"acme": {"weight": "2"}}', "setting.limits.acme.weight is '2'"),
    ],
)
def test_each_field_of_the_manifest_is_looked_at(tmp_path: Path, old: str, new: str, told: str) -> None:
    path = write_run(tmp_path / "run", [cell()]) / "manifest.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(InvalidResults, match=told):
        read(tmp_path / "run")


def test_no_cell_reaches_out_of_the_run(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", [cell()]) / "manifest.json"
    path.write_text(path.read_text().replace('"wfq', '"../../wfq'))
    with pytest.raises(InvalidResults, match="it must be fit for a file"):
        read(tmp_path / "run")
    with Writer(tmp_path / "other", "matrix", IDENTITY) as writer, pytest.raises(InvalidResults, match="names no file"):
        writer.add(cell(setting={"policy": "../../wfq"}))


def test_a_directory_that_is_not_empty_is_refused_and_a_cell_is_added_once(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", [cell()])
    with pytest.raises(InvalidResults, match="not empty: name one that does not exist"):
        Writer(directory, "matrix", IDENTITY)
    with Writer(tmp_path / "other", "matrix", IDENTITY) as writer:
        writer.add(cell())
        with pytest.raises(InvalidResults, match="this run has already"):
            writer.add(cell())
    (tmp_path / "file").touch()
    with pytest.raises(InvalidResults, match="cannot be written"):
        Writer(tmp_path / "file", "matrix", IDENTITY)


def test_c165_no_text_of_a_user_is_a_formula_and_numbers_stay_numbers(tmp_path: Path) -> None:
    risky = ["=1+1", "+1", "-5", "@cmd", "\tx", "\rx", "\nx", "'quoted", "plain", "a=b"]
    outcomes = [outcome(n, tenant=text, lane=text, priority=-n) for n, text in enumerate(risky, start=1)]
    made = cell(outcomes, setting={"tenants": tuple(risky)})
    directory = write_run(tmp_path / "run", [made])
    for path in [*directory.glob("*.csv"), *(directory / "raw").iterdir()]:
        for row in rows(path):
            for name, value in row.items():
                formula = value.startswith(("=", "+", "-", "@", "\t", "\r"))
                assert not formula or name == "priority", (path.name, name, value)
                assert name != "priority" or int(value) < 0
    found = read(directory)
    assert found.cell(found.cells[0]) == made
    assert sorted(row.tenant for row in found.tenants) == sorted(risky)
    assert all(original(neutral(text)) == text for text in risky)


def test_the_tables_tell_means_with_intervals_and_n(tmp_path: Path) -> None:
    slow = [outcome(number, ended_us=number * 10_000 + 65_000) for number in range(1, 41)]
    cells = [cell(), cell(slow, setting={"seed": 43, "repetition": 2}, timed_out=True)]
    directory = write_run(tmp_path / "run", cells)
    found = {row["figure"]: row for row in rows(directory / "summary.csv")}
    mean = found["latency_p50_ms"]
    assert (mean["n"], mean["mean"], mean["worst"], mean["timed_out"]) == ("2", "60.0", "65.0", "1")
    assert float(mean["low"]) == pytest.approx(60 - 12.706 * 5, abs=0.01)
    assert (found["latency_p99_ms"]["mean"], found["latency_p99_ms"]["worst"]) == ("", "")
    table = (directory / "summary.md").read_text()
    assert "| wfq | direct | 2* | 60 ± 64 | 60 ± 64 | - |" in table
    assert "of a part of the jobs" in table


@pytest.mark.parametrize("profile", ["quick", "failure"])
def test_a_simulated_cell_is_one_like_any_other(tmp_path: Path, profile: str) -> None:
    known = profiles.load(profile)
    workload = known.workload("multi_tenant", jobs=120)
    ran = simulate(workload, POLICIES["wfq"](), failures=known.failures, limits=known.limits)
    made = cell_of(workload, "wfq", ran, profile=known, repetition=1)
    assert (made.setting.dispatch, made.setting.execution, made.state) == ("simulated", "virtual", "complete")
    assert len(made.dead_letters) == sum(not one.completed for one in made.outcomes)
    found = read(write_run(tmp_path / "run", [made], known))
    assert found.cell(found.cells[0]) == made
    assert found.runs[0].profile == json.loads(json.dumps(found.manifest["runs"][0]["profile"]))
    assert found.manifest["runs"][0]["profile"]["failures"]["lost"] == known.failures.lost
