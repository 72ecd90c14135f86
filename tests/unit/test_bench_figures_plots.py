"""Plots of what `--json` wrote: failover, ceiling, other queues; and `bench plot`, which draws them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from queueapp.bench import plots
from queueapp.bench.experiments import ceiling, failover_trials, peers
from queueapp.bench.plots.files import Figures, InvalidFigures, read
from tests.plotted import run

pytest.importorskip("matplotlib", reason="draws with matplotlib, which the extra `bench` brings")

import numpy
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from queueapp.bench.plots import batches, dots, drawing, others, outages, sheet
from queueapp.bench.plots.sheet import Sheet

RUN = {"server": "valkey 9.1", "append_only_file": True, "cpus": 2, "python": "3.13", "ductor": "0.1.0"}


def figures(bench: str, rows: list[dict[str, Any]]) -> Figures:
    return Figures(bench=bench, run=RUN, figures={}, rows=rows)


def drawn(found: Figures) -> dict[str, Sheet]:
    with sheet.looking():
        return {made.name: made for made in drawing.of_file(found)}


def trial(outage_ms: float | None, arm: str = "pause", **more: Any) -> dict[str, Any]:
    window = {"predicted_low_ms": 1_300, "predicted_high_ms": 3_000}
    return {"arm": arm, "ttl_s": 2, "outage_ms": outage_ms, "limit_ms": 4_000, **window, **more}


def xs(line: Line2D) -> list[float]:
    found: list[float] = numpy.asarray(line.get_xdata(), dtype=float).tolist()
    return found


def boxes(axes: Axes, **wanted: object) -> list[tuple[float, float]]:
    """Left and right end of the rectangles that are drawn so."""
    found = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    alike = [one for one in found if all(getattr(one, f"get_{name}")() == value for name, value in wanted.items())]
    return [(float(one.get_x()), float(one.get_x() + one.get_width())) for one in alike]


# -- failover ----------------------------------------------------------------------------------------------------------


def test_outages_are_dots_and_those_that_never_end_are_hatched_from_the_limit_on() -> None:
    made = drawn(figures("failover", [trial(1_500), trial(2_000), trial(2_500), trial(None)]))["failover_outages"]
    (axes,) = made.panels
    (dotted,) = (line for line in axes.get_lines() if line.get_marker() == "o")
    assert xs(dotted) == [1_500, 2_000, 2_500]
    ((left, right),) = boxes(axes, hatch="////")
    assert (left, round(right, 6)) == (4_000, round(axes.get_xlim()[1], 6))
    assert "1 of 4 never recovered within 4 s" in made.description


def test_what_the_lease_predicts_is_a_band_behind_the_trials() -> None:
    (axes,) = drawn(figures("failover", [trial(1_500), trial(2_000)]))["failover_outages"].panels
    assert (1_300, 3_000) in boxes(axes)
    assert boxes(axes, hatch="////") == []


def test_a_trial_that_never_ends_counts_as_longer_than_any_other() -> None:
    row = outages.Row("pause", 2, [trial(100), trial(200), trial(None), trial(None), trial(None)])
    assert row.percentile(25) == 200
    assert row.percentile(50) is None
    assert outages.Row("pause", 2, [trial(ms) for ms in (100, 200, 300)]).percentile(50) == 200


def test_each_arm_and_lease_has_a_row_in_the_order_of_the_arms() -> None:
    rows = [trial(400, "worker", ttl_s=None), trial(None, "single"), trial(90, "crash", ttl_s=10), trial(90, "crash")]
    (axes,) = drawn(figures("failover", rows))["failover_outages"].panels
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "crash: SIGKILL, lease 2 s",
        "crash: SIGKILL, lease 10 s",
        "single: SIGKILL, no standby, lease 2 s",
        "worker: SIGKILL to a worker",
    ]


def test_the_arms_are_those_of_the_experiment() -> None:
    assert tuple(outages.ARMS) == failover_trials.ARMS


# -- ceiling -----------------------------------------------------------------------------------------------------------


def test_the_ceiling_has_a_line_for_the_fence_live_and_one_for_it_inert() -> None:
    rows = [
        {"batch": batch, "fence": fence, "rounds": 3, **dict.fromkeys(names(), value)}
        for batch, fence, value in ((50, "live", 10.0), (250, "live", 20.0), (50, "inert", 11.0), (250, "inert", 22.0))
    ]
    made = drawn(figures("ceiling", rows))["ceiling"]
    lines = [numpy.asarray(line.get_ydata()).tolist() for line in made.axes[0][0].get_lines()]
    assert lines == [[10.0, 20.0], [11.0, 22.0]]
    assert [label.get_text() for label in made.axes[0][0].get_xticklabels()] == ["50", "250"]


def names() -> list[str]:
    return [f"{stage}_{part}" for stage in batches.STAGES for part, _ in batches.PARTS]


def test_stages_and_promise_are_those_of_the_experiment() -> None:
    assert tuple(batches.STAGES) == ceiling.STAGES
    assert batches.PROMISED_PER_S == ceiling.LEAST_PER_S
    assert set(names()) <= set(ceiling.Arm(batch=1, fence="live").medians())


# -- other queues ------------------------------------------------------------------------------------------------------


def peer(name: str, **more: Any) -> dict[str, Any]:
    known = {"drain_per_s": 100, "enqueue_single_per_s": 90, "enqueue_bulk_per_s": 80, "bytes_per_job": 70}
    return {"peer": name, "title": name.title(), "version": "1.0", "aof": "on", **known, **more}


def test_queues_stand_in_the_order_of_their_drain_with_ductor_marked() -> None:
    rows = [peer("huey", drain_per_s=50), peer("ductor", drain_per_s=500, start_ms_p50=1.0, start_ms_p99=3.0)]
    made = drawn(figures("throughput", rows))["peers_aof_on"]
    drain, enqueue, start, memory = made.panels
    labels = drain.get_yticklabels()
    assert [label.get_text() for label in labels] == ["Ductor 1.0", "Huey 1.0"]
    assert [label.get_fontweight() for label in labels] == ["bold", "normal"]
    assert [round(right) for _, right in boxes(drain)] == [500, 50]
    assert sorted(round(right) for _, right in boxes(enqueue)) == [80, 80, 90, 90]
    assert [round(right) for _, right in boxes(memory)] == [70, 70]
    assert [xs(line) for line in start.get_lines()][-3:] == [[1.0, 3.0], [1.0], [3.0]]


def test_what_was_not_measured_is_told_as_such() -> None:
    lacking = peer("rq", enqueue_bulk_per_s=None, not_measured={"enqueue, in bulk": "it has no such call"})
    made = drawn(figures("throughput", [peer("ductor"), lacking, {"peer": "x", "title": "X", "aof": "on"}]))
    texts = [text.get_text() for text in made["peers_aof_on"].panels[1].texts]
    assert texts.count("no such call") == 1
    assert texts.count("not measured") == 2
    assert others.NO_CALL in Path(peers.__file__).read_text()


def test_each_persistence_has_a_plot_of_its_own() -> None:
    found = drawn(figures("throughput", [peer("ductor"), peer("ductor", aof="off")]))
    assert list(found) == ["peers_aof_on", "peers_aof_off"]
    assert set(found) | {"failover_outages", "ceiling"} == set(plots.OF_FILES)


# -- files and the command ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "cannot be read"),
        ("[", "cannot be read"),
        ("[]", "has no bench, run and figures"),
        ('{"bench": "x", "run": {}}', "has no bench, run and figures"),
        ('{"bench": "x", "run": {}, "figures": {}, "rows": [1]}', "rows are no list of objects"),
        ('{"bench": "x", "run": {}, "figures": {}, "rows": 5}', "rows are no list of objects"),
    ],
)
def test_a_file_that_is_no_figures_is_refused_by_name(text: str | None, told: str, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidFigures, match=told) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_figures_that_have_nothing_to_draw_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFigures, match="bench is 'walk'"):
        plots.draw_figures(figures("walk", []), tmp_path, lambda name: None)
    with pytest.raises(InvalidFigures, match="throughput --peers"):
        plots.draw_figures(figures("throughput", [{"part": "drain"}]), tmp_path, lambda name: None)


def test_bench_plot_draws_runs_and_figures_and_writes_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drawing, "OF_RUNS", (lambda series: iter([dots.single(series, dots.FIGURES[0])]),))
    file = tmp_path / "failover.json"
    file.write_text(json.dumps({"bench": "failover", "run": RUN, "figures": {}, "rows": [trial(90)]}))
    run(tmp_path / "run", repetitions=1)
    call_command("bench", "plot", str(tmp_path / "run"), str(file), "--output", str(tmp_path / "out"))
    assert {path.name for path in (tmp_path / "out" / "plots").iterdir()} == {
        f"{name}.{kind}" for name in ("throughput", "failover_outages") for kind in ("png", "svg")
    }
    assert (tmp_path / "out" / "report.html").is_file()
    assert "4 files in" in capsys.readouterr().out


def test_bench_plot_refuses_what_is_neither(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"manifest\.json cannot be read"):
        call_command("bench", "plot", str(tmp_path))
    with pytest.raises(CommandError, match=r"none\.json cannot be read"):
        call_command("bench", "plot", str(tmp_path / "none.json"))
