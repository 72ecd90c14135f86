"""`bench merge`: runs of the same become one, and nothing else does."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from queueapp.bench.experiments.merge import run
from queueapp.bench.failures import Failures
from queueapp.bench.harness import Progress, Report
from queueapp.bench.results.merging import OPTIONS, PLACE, REVISION, merge
from queueapp.bench.results.reading import read
from queueapp.bench.results.rows import InvalidResults
from queueapp.bench.results.writing import Writer
from queueapp.bench.workloads.shape import Durations, Shape
from queueapp.policies.room import Limits
from tests.cells import IDENTITY, PROFILE, cell, outcome, write_run


def repetitions(*seeds: int, **setting: Any) -> list[Any]:
    return [
        cell(setting={"seed": seed, "repetition": place, "workload_digest": f"d{seed}", **setting})
        for place, seed in enumerate(seeds, start=1)
    ]


def test_two_halves_of_the_repetitions_become_one_run(tmp_path: Path) -> None:
    dead = [outcome(1, completed=False), outcome(2)]
    letter = {"id": "x", "number": 1, "tenant": "globex", "attempts": 1, "reason": "failed", "error": "no"}
    late = cell(
        dead,
        setting={"policy": "fifo", "seed": 41, "jobs": 40, "workload_digest": "d41"},
        dead_letters=[letter],
        timed_out=True,
    )
    first = write_run(tmp_path / "first", repetitions(44, 45))
    second = write_run(tmp_path / "second", [late, *repetitions(42, 43)], identity={"at": "2026-03-02T00:00:00+00:00"})
    found = merge([first, second], tmp_path / "both")
    assert [(row.setting.policy, row.setting.seed, row.setting.repetition) for row in found.cells] == [
        ("wfq", 42, 2),
        ("wfq", 43, 3),
        ("wfq", 44, 4),
        ("wfq", 45, 5),
        ("fifo", 41, 1),
    ]
    runs = [read(directory).runs[0] for directory in (first, second)]
    assert found.runs == runs
    assert [row.run for row in found.cells] == [runs[place].id for place in (1, 1, 0, 0, 1)]
    assert found.finished
    assert found.cell(found.cells[-1]) == replace(late, setting=replace(late.setting, repetition=1))
    again = merge([tmp_path / "both"], tmp_path / "again")
    assert again.cells == found.cells


@pytest.mark.parametrize("name", [*REVISION, *PLACE])
def test_runs_of_other_code_or_on_other_machines_are_refused(tmp_path: Path, name: str) -> None:
    first = write_run(tmp_path / "first", repetitions(42))
    second = write_run(tmp_path / "second", repetitions(43), identity={name: "another"})
    remedy = "give --allow-revisions" if name in REVISION else "merge runs of one kind of machine"
    with pytest.raises(InvalidResults, match=rf"second: {name} is 'another', in .*first .*: {remedy}"):
        merge([first, second], tmp_path / "both")
    assert not (tmp_path / "both").exists()
    if name in REVISION:
        assert len(merge([first, second], tmp_path / "both", allow_revisions=True).cells) == 2
    else:
        with pytest.raises(InvalidResults, match=name):
            merge([first, second], tmp_path / "both", allow_revisions=True)


def test_what_was_simulated_may_come_from_any_machine(tmp_path: Path) -> None:
    virtual = {"dispatch": "simulated", "execution": "virtual"}
    first = write_run(tmp_path / "first", repetitions(42, **virtual))
    second = write_run(tmp_path / "second", repetitions(43, **virtual), identity=dict.fromkeys(PLACE, "another"))
    assert len(merge([first, second], tmp_path / "both").cells) == 2


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"slots": 9}, "slots is 9, in .* 8: merge runs that were given the same, or compare"),
        ({"workers": 3}, "workers is 3"),
        ({"execution": "cpu"}, "execution is 'cpu'"),
        ({"starving_ms": 1}, "starving_ms is 1"),
        ({"failures": Failures(lost=0.2)}, "failures is Failures"),
        ({"limits": {"acme": Limits(weight=2)}}, r"limits\.acme is Limits"),
        ({"jobs": 41}, "jobs is 41"),
        ({"big": "acme"}, "big is 'acme'"),
    ],
)
def test_settings_that_differ_are_refused_by_name(tmp_path: Path, setting: dict[str, Any], told: str) -> None:
    first = write_run(tmp_path / "first", repetitions(42))
    second = write_run(tmp_path / "second", repetitions(43, **setting))
    with pytest.raises(InvalidResults, match=f"second: {told}"):
        merge([first, second], tmp_path / "both")


def test_other_jobs_for_the_same_seed_are_refused(tmp_path: Path) -> None:
    first = write_run(tmp_path / "first", repetitions(42))
    second = write_run(tmp_path / "second", repetitions(42, policy="fifo", workload_digest="other"))
    with pytest.raises(InvalidResults, match=r"workload_digest of seed 42 is 'other', in .*first 'd42'"):
        merge([first, second], tmp_path / "both")


def test_other_recordings_are_refused_whatever_their_seeds(tmp_path: Path) -> None:
    first = write_run(tmp_path / "first", repetitions(42, workload="trace"))
    second = write_run(tmp_path / "second", repetitions(43, workload="trace"))
    with pytest.raises(InvalidResults, match="workload_digest is 'd43'"):
        merge([first, second], tmp_path / "both")


@pytest.mark.parametrize("name", OPTIONS)
def test_other_options_that_no_setting_tells_are_refused(tmp_path: Path, name: str) -> None:
    first = write_run(tmp_path / "first", repetitions(42), identity={name: 1})
    second = write_run(tmp_path / "second", repetitions(43), identity={name: 2})
    with pytest.raises(InvalidResults, match=f"second: option {name} is 2, in .*first 1: merge runs that were given"):
        merge([first, second], tmp_path / "both")


def test_other_contents_of_a_profile_are_refused_and_other_seeds_are_not(tmp_path: Path) -> None:
    other = replace(PROFILE, shape=Shape(durations=Durations(least_ms=1, most_ms=60)))
    more = replace(PROFILE, name="copy", run=replace(PROFILE.run, seed=43, repetitions=1))
    first = write_run(tmp_path / "first", repetitions(42))
    second = write_run(tmp_path / "second", repetitions(43), other)
    with pytest.raises(InvalidResults, match=r"profile\.shape\.durations\.least_ms is 1, in .* 40: merge runs of one"):
        merge([first, second], tmp_path / "both")
    third = write_run(tmp_path / "third", repetitions(43), more)
    assert len(merge([first, third], tmp_path / "both").cells) == 2


def test_runs_that_overlap_are_refused(tmp_path: Path) -> None:
    first = write_run(tmp_path / "first", repetitions(42, 43))
    second = write_run(tmp_path / "second", repetitions(44, 43))
    with pytest.raises(InvalidResults, match=r"second: cell is 'wfq-.*' with seed 43, which .*first has, too"):
        merge([first, second], tmp_path / "both")
    with pytest.raises(InvalidResults, match=r"which .*first has, too"):
        merge([first, first], tmp_path / "both")


def test_what_cannot_be_merged_is_said(tmp_path: Path) -> None:
    empty = write_run(tmp_path / "empty", [])
    with pytest.raises(InvalidResults, match="has no cells"):
        merge([empty], tmp_path / "both")
    first = write_run(tmp_path / "first", repetitions(42))
    with pytest.raises(InvalidResults, match="not empty"):
        merge([first], first)
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("bench", "merge", str(tmp_path / "nothing"))


def test_the_command_makes_a_run_whole_that_was_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = Writer(tmp_path / "broken", "matrix", IDENTITY, profile=PROFILE)
    writer.add(cell())
    with pytest.raises(KeyError), writer:
        raise KeyError
    monkeypatch.chdir(tmp_path)
    call_command("bench", "merge", "broken")
    assert "broken was broken off: the cells that it had are taken" in capsys.readouterr().out
    assert [read(path).finished for path in (tmp_path / "results").iterdir()] == [True]


def test_the_report_counts_what_there_is(tmp_path: Path) -> None:
    late = cell([outcome(1)], setting={"seed": 43, "repetition": 2, "jobs": 40}, timed_out=True)
    report, out = Report(bench="merge", run={}), StringIO()
    directories = [write_run(tmp_path / "a", [cell()]), write_run(tmp_path / "b", [late])]
    run(report, Progress(out), directories, tmp_path / "both", allow_revisions=False)
    assert report.figures == {"runs": 2, "cells": 2, "seeds": 2, "timed_out": 1, "unfinished": 39}
