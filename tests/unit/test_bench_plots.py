"""Plots of a run: there is one for all that the run has, what is measured reaches the axes, files are reproducible."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from queueapp.bench import plots
from queueapp.bench.intervals import interval
from queueapp.bench.plots import look
from queueapp.bench.results.reading import RunResults, read
from queueapp.policies.registry import POLICIES
from tests.cells import cell, write_run
from tests.plotted import BIG, SMALL, WAITS_MS, run, wait_ms

matplotlib = pytest.importorskip("matplotlib", reason="draws with matplotlib, which the extra `bench` brings")

import numpy  # noqa: E402  these are only there with matplotlib
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402

from queueapp.bench.plots import curves, dots, drawing, scales, sheet, tenants, waits  # noqa: E402
from queueapp.bench.plots.series import Series  # noqa: E402
from queueapp.bench.plots.sheet import Sheet  # noqa: E402

ALWAYS = {"latency_percentiles", "tail_ratio", "tenant_skew", "priority_starvation", "starvation"} | {
    "deadline_misses",
    "jain",
    "throughput",
    "utilisation",
}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    """A run with all that can be drawn."""
    directory = tmp_path_factory.mktemp("everything") / "run"
    dispatches = ("direct", "scheduled")
    return run(directory, policies=("fifo", "wfq", "tiered"), dispatches=dispatches, loads=(0.5, 1.25, 2.0))


@pytest.fixture(scope="module")
def all_sheets(everything: RunResults) -> dict[str, Sheet]:
    return sheets(everything)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    """Two policies, twice."""
    return run(tmp_path_factory.mktemp("plain") / "run")


@pytest.fixture(scope="module")
def plain_sheets(plain: RunResults) -> dict[str, Sheet]:
    return sheets(plain)


def sheets(results: RunResults) -> dict[str, Sheet]:
    with sheet.looking():
        return {made.name: made for made in drawing.of_run(results)}


def only(monkeypatch: pytest.MonkeyPatch, *makers: Callable[[Series], Iterator[Sheet]]) -> None:
    """Draws these and no others, which would take their time."""
    monkeypatch.setattr(drawing, "OF_RUNS", makers)


def no_one(name: str) -> None:
    """Told of nothing."""


def data(line: Line2D) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in numpy.column_stack([line.get_xdata(), line.get_ydata()]).tolist()]


def points(axes: Axes) -> set[tuple[float, float]]:
    """All that is marked there, to the tenth."""
    lines = [line for line in axes.get_lines() if line.get_transform() == axes.transData]
    return {(round(x, 1), round(y, 1)) for line in lines for x, y in data(line)}


def places(axes: Axes, at: float) -> list[float]:
    """Where something is marked in the row at this height."""
    return sorted(x for x, y in points(axes) if y == at)


# -- what is drawn ---------------------------------------------------------------------------------------------------


def test_there_is_a_plot_for_all_that_a_run_has(all_sheets: dict[str, Sheet]) -> None:
    assert set(all_sheets) == set(plots.OF_RUNS) == ALWAYS | {"load_curves", "dispatch_modes"}


def test_each_plot_is_drawn_as_png_and_svg(plain: RunResults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, dots.figures)
    heard: list[str] = []
    files = plots.draw(plain, tmp_path / "out", heard.append)
    assert heard == ["throughput", "deadline_misses", "utilisation"]
    assert [path.name for path in files] == [f"{name}.{kind}" for name in heard for kind in ("png", "svg")]
    assert {path.parent for path in files} == {tmp_path / "out" / "plots"}
    for path in files:
        start = path.read_bytes()[:8]
        assert start == (b"\x89PNG\r\n\x1a\n" if path.suffix == ".png" else b"<?xml ve")


@pytest.mark.parametrize(
    ("how", "gone"),
    [
        ({}, set()),
        ({"deadline_us": 0}, {"deadline_misses"}),
        ({"priority": 1}, {"priority_starvation"}),
        ({"completed": False}, {"latency_percentiles", "tail_ratio", "deadline_misses"}),
    ],
    ids=["all", "no deadlines", "one priority", "all dead"],
)
def test_what_a_run_does_not_have_is_not_drawn(how: dict[str, Any], gone: set[str], tmp_path: Path) -> None:
    assert set(sheets(run(tmp_path / "run", **how))) == ALWAYS - gone


def test_a_run_of_no_jobs_has_no_plots(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", [cell([], setting={"jobs": 5}, timed_out=True)])
    assert plots.draw(read(directory), tmp_path / "out", no_one) == []


def test_plots_of_an_earlier_call_go_and_nothing_else_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, dots.figures)
    target = tmp_path / "out"
    first = plots.draw(run(tmp_path / "one", repetitions=1), target, no_one)
    (target / "plots" / "mine.png").touch()
    second = plots.draw(run(tmp_path / "two", repetitions=1, deadline_us=0), target, no_one)
    assert {path.stem for path in first} - {path.stem for path in second} == {"deadline_misses"}
    assert {path for path in (target / "plots").iterdir() if path.name != "mine.png"} == set(second)
    assert (target / "plots" / "mine.png").exists()


# -- reproducible, and nobody else's business --------------------------------------------------------------------------


def test_files_are_the_same_each_time_whatever_the_host_has_set(
    everything: RunResults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, curves.plots)
    first = plots.draw(everything, tmp_path / "first", no_one)
    with matplotlib.rc_context({"font.size": 31, "svg.hashsalt": None, "xtick.direction": "in"}):
        before = dict(matplotlib.rcParams)
        second = plots.draw(everything, tmp_path / "second", no_one)
        assert dict(matplotlib.rcParams) == before
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_the_last_bits_of_a_layout_do_not_show(plain: RunResults, tmp_path: Path) -> None:
    """The solver of the layout goes by addresses in memory, so that two runs of it may differ in them."""
    drawn = []
    for number, off in enumerate((0.0, 1e-13)):
        with sheet.looking():
            made = next(dots.figures(Series(plain)))
            draw = made.figure.draw_without_rendering

            def moved(draw: Callable[[], None] = draw, made: Sheet = made, off: float = off) -> None:
                draw()
                left, bottom, width, height = made.panels[0].get_position().bounds
                made.panels[0].set_position((left + off, bottom, width, height))

            made.figure.draw_without_rendering = moved  # type: ignore[method-assign]
            (tmp_path / str(number)).mkdir()
            drawn.append([path.read_bytes() for path in made.save(tmp_path / str(number))])
    assert drawn[0] == drawn[1]


def test_nothing_is_drawn_through_the_global_pyplot() -> None:
    for path in Path(plots.__file__).parent.glob("*.py"):
        assert "pyplot" not in path.read_text()


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    with pytest.raises(plots.NoMatplotlib, match=r'pip install "django-ductor\[bench\]"'):
        plots.draw(run(tmp_path / "run", repetitions=1), tmp_path / "out", no_one)
    assert not (tmp_path / "out").exists()


# -- what reaches the axes ---------------------------------------------------------------------------------------------


def test_percentiles_are_means_over_the_repetitions_in_the_row_of_their_policy(
    plain: RunResults, plain_sheets: dict[str, Sheet]
) -> None:
    (axes,) = plain_sheets["latency_percentiles"].axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["fifo", "wfq"]
    for row, policy in enumerate(["fifo", "wfq"]):
        cells = [cell for cell in plain.cells if cell.setting.policy == policy]
        for figure in ("latency_p50_ms", "latency_p95_ms", "latency_p99_ms"):
            mean = interval(cell.figures[figure] for cell in cells).mean
            assert round(mean, 1) in places(axes, row)


def test_a_figure_is_shown_with_its_interval_and_its_repetitions(
    plain: RunResults, plain_sheets: dict[str, Sheet]
) -> None:
    made = plain_sheets["throughput"]
    (axes,) = made.axes[0]
    values = [cell.figures["throughput_per_s"] for cell in plain.cells if cell.setting.policy == "fifo"]
    known = interval(values)
    for value in (*values, known.mean, known.low, known.high):
        assert round(value, 1) in places(axes, 0)
    assert str(known) in {text.get_text() for text in axes.texts}
    assert f"multi_tenant, fifo: {known} jobs/s" in made.description


def test_jains_floor_is_one_by_the_number_of_tenants(plain_sheets: dict[str, Sheet]) -> None:
    (axes,) = plain_sheets["jain"].axes[0]
    assert [data(line)[0][0] for line in axes.get_lines() if line.get_linestyle() == "--"] == [0.5]
    assert "1/n = 0.5" in {text.get_text() for text in axes.texts}


def test_each_tenant_is_marked_and_the_big_one_apart(plain_sheets: dict[str, Sheet]) -> None:
    of_waits, of_latencies = plain_sheets["tenant_skew"].axes[0]
    for row, policy in enumerate(["fifo", "wfq"]):
        for tenant, marker in ((BIG, "s"), (SMALL, "o")):
            p95 = sum(wait_ms(policy, repetition, tenant, 0, 1.25) for repetition in (1, 2)) / 2
            for axes, more_ms in ((of_waits, 0), (of_latencies, 50)):
                assert [
                    line.get_marker()
                    for line in axes.get_lines()
                    if [(round(x, 6), y) for x, y in data(line)] == [(round(p95 + more_ms, 6), row)]
                ] == [marker]
                assert axes.get_xscale() == "log"


def test_waits_by_priority_fall_where_a_policy_looks_at_it(plain_sheets: dict[str, Sheet]) -> None:
    (axes,) = plain_sheets["priority_starvation"].axes[0]
    p95 = [sum(wait_ms("wfq", repetition, BIG, level, 1.25) for repetition in (1, 2)) / 2 for level in (0, 1)]
    assert {(0.0, p95[0]), (1.0, p95[1])} <= points(axes)
    assert p95[0] == 2 * p95[1]


def test_load_curves_have_a_point_for_each_load_and_the_name_at_the_end(
    everything: RunResults, all_sheets: dict[str, Sheet]
) -> None:
    made = all_sheets["load_curves"]
    axes = made.axes[0][0]
    assert axes.get_title(loc="left") == "multi tenant: p99 latency"
    names = {text.get_text() for text in axes.texts}
    assert names == {f"{policy}, {dispatch}" for policy in WAITS_MS for dispatch in ("direct", "scheduled")}
    for load in (0.5, 1.25, 2.0):
        cells = [
            cell
            for cell in everything.cells
            if (cell.setting.policy, cell.setting.dispatch, cell.setting.load) == ("fifo", "direct", load)
        ]
        p99 = round(sum(cell.figures["latency_p99_ms"] for cell in cells) / len(cells), 1)
        assert any(abs(x - load) < 0.1 and y == p99 for x, y in points(axes))


def test_plots_of_one_load_show_the_one_nearest_to_where_policies_differ(
    everything: RunResults, all_sheets: dict[str, Sheet]
) -> None:
    made = all_sheets
    (axes,) = made["throughput"].axes[0]
    cells = [cell for cell in everything.cells if cell.setting.name.startswith("fifo-direct-multi_tenant-1.25x")]
    assert round(interval(cell.figures["throughput_per_s"] for cell in cells).mean, 1) in places(axes, 0)
    assert "load 1.25 ·" in made["throughput"].description
    assert "load 0.5 / 1.25 / 2 ·" in made["load_curves"].description


def test_kinds_of_dispatch_stand_side_by_side_in_the_row_of_their_policy(all_sheets: dict[str, Sheet]) -> None:
    made = all_sheets["dispatch_modes"]
    axes = made.axes[0][1]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["fifo", "wfq", "tiered"]
    drawn = {line.get_marker() for line in axes.get_lines() if line.get_markersize() == 6.5}
    assert drawn == {"o", "s"}
    assert places(axes, -0.2)  # direct, a little above the middle of the first row
    assert places(axes, 0.0)


def test_a_single_repetition_has_no_interval_and_the_plot_says_so(tmp_path: Path) -> None:
    made = sheets(run(tmp_path / "run", repetitions=1))["throughput"]
    assert "±" not in made.description
    assert any("A single repetition" in text.get_text() for text in made.figure.texts)


# -- how it looks ------------------------------------------------------------------------------------------------------


def test_no_two_policies_look_alike() -> None:
    assert set(POLICIES) <= set(look.POLICIES)
    for part in ("colour", "marker"):
        drawn = [getattr(mark, part) for mark in (*look.POLICIES.values(), look.OWN, look.NOBODY)]
        alike = {"#7F7F7F"}  # the ideal and the control arm, which are no policies
        assert len(set(drawn)) == len(drawn) - (part == "colour" and len(alike))


def test_a_policy_is_drawn_alike_everywhere_and_its_variants_in_its_colour(all_sheets: dict[str, Sheet]) -> None:
    made = all_sheets
    for name in ("throughput", "utilisation", "load_curves", "priority_starvation"):
        drawn = {line.get_color() for line in made[name].panels[0].get_lines()}
        assert look.POLICIES["tiered"].colour in drawn
    assert look.mark("edf_latest_start").colour == look.mark("edf").colour
    assert look.mark("edf_latest_start").marker != look.mark("edf").marker
    assert look.mark("tests.Own") == look.OWN


def test_words_are_dark_enough_on_white() -> None:
    for mark in (*look.POLICIES.values(), look.OWN, look.NOBODY):
        assert look.contrast(mark.ink) >= look.LEGIBLE
    for colour in (look.INK, look.QUIET, look.WARNING):
        assert look.contrast(colour) >= look.LEGIBLE
    assert look.contrast("#000000") == pytest.approx(21)
    assert look.contrast("#FFFFFF") == pytest.approx(1)


def test_names_of_people_are_no_formulas_and_no_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, tenants.plots)
    hostile = "$\\frac{<script>"
    files = plots.draw(run(tmp_path / "run", tenant=hostile, repetitions=1), tmp_path / "out", no_one)
    for path in files:
        if path.suffix == ".svg":
            assert "<script" not in path.read_text()
    with sheet.looking():
        assert not sheet.sheet("x", hostile, "", rows=1, columns=1, height=1).figure.texts[0].get_parse_math()
    skew = (tmp_path / "out" / "plots" / "tenant_skew.svg").read_text()
    assert "$\\frac{&lt;script&gt;" in skew


def test_svg_files_say_in_words_what_they_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, lambda series: iter([waits.jain(series)]))
    plots.draw(run(tmp_path / "run", repetitions=1), tmp_path / "out", no_one)
    drawn = (tmp_path / "out" / "plots" / "jain.svg").read_text()
    assert re.search(r'<svg [^>]*role="img" aria-labelledby="jain-title jain-words">\s*<title id="jain-title">', drawn)
    assert "multi_tenant, wfq: over service" in drawn


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ([5.0], [5.0]),
        ([0.0, 20.0], [0.0, 20.0]),
        ([0.0, 4.0], [-3.0, 7.0]),
        ([0.0, 0.0, 0.0], [-10.0, 0.0, 10.0]),
        ([0.0, 8.0, 9.0], [-4.3, 5.7, 15.7]),
    ],
)
def test_names_that_would_cover_each_other_move_apart(wanted: list[float], found: list[float]) -> None:
    assert curves.apart_by(10, wanted) == pytest.approx(found, abs=0.05)


@pytest.mark.parametrize(
    ("value", "told"), [(0.5, "0.5"), (12, "12"), (3400, "3,400"), (1_200_000, "1.2 M"), (0.125, "0.125")]
)
def test_numbers_on_axes_are_short(value: float, told: str) -> None:
    assert scales.number(value) == told
