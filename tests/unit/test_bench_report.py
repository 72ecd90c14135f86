"""The report: one page that needs nothing else, has all figures, warns of what is missing, and escapes its text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from queueapp.bench import plots
from queueapp.bench.intervals import interval
from queueapp.bench.plots import markup
from queueapp.bench.plots.report import write_report
from queueapp.bench.plots.words import HOW_TO_READ, TITLES
from queueapp.bench.results.cells import Cell
from queueapp.bench.results.reading import read
from tests.cells import IDENTITY, cell, write_run
from tests.plotted import cells, ended, run

SVG = """<?xml version="1.0"?>
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">
<svg xmlns:xlink="http://www.w3.org/1999/xlink" xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="a b">
 <title id="a">T</title>
 <desc id="b">one &lt; two
three</desc>
 <defs><style type="text/css">*{stroke-linejoin: round}</style><clipPath id="p1"><path d="M 0 0"/></clipPath></defs>
 <g id="figure_1"><use xlink:href="#p1" clip-path="url(#p1)"/></g>
</svg>
"""
VOID = {"meta", "br", "img", "link", "input"}


class Page(HTMLParser):
    """What a browser sees; refuses what is not balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def all(self, *names: str) -> Iterator[tuple[str, dict[str, str | None]]]:
        return ((tag, attributes) for tag, attributes in self.tags if tag in names)


def page(directory: Path, made: list[Cell] | None = None, **how: Any) -> str:
    """The report of these cells, with two plots."""
    write_run(directory, cells(**how) if made is None else made)
    (directory / "plots").mkdir()
    for name in ("jain", "throughput"):
        (directory / "plots" / f"{name}.svg").write_text(SVG)
    return write_report(read(directory), directory).read_text()


def test_the_page_loads_nothing_and_runs_nothing(tmp_path: Path) -> None:
    text = page(tmp_path / "run")
    found = Page(text)
    assert list(found.all("script", "link", "img", "iframe", "object", "form")) == []
    outside = [value for _, held in found.tags for name, value in held.items() if value and "//" in value]
    assert set(outside) == {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}
    assert re.findall(r"https?://[^\"]+", text) == outside
    assert not any(name.startswith("on") for _, held in found.tags for name in held)
    assert "default-src 'none'" in text
    assert "url(" not in re.sub(r"url\(#", "", text)


def test_the_page_can_be_read_aloud(tmp_path: Path) -> None:
    found = Page(page(tmp_path / "run"))
    levels = [int(tag[1]) for tag, _ in found.all("h1", "h2", "h3", "h4")]
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
    assert all(held.get("scope") in ("col", "row") for _, held in found.all("th"))
    assert len(list(found.all("caption"))) == len(list(found.all("table"))) > 0
    ids = [held["id"] for _, held in found.tags if "id" in held]
    assert len(ids) == len(set(ids))
    for _, held in found.all("svg"):
        assert set(str(held["aria-labelledby"]).split()) <= set(ids)
    assert {str(held["href"])[1:] for _, held in found.all("a")} <= set(ids)
    assert dict(found.all("html"))["html"] == {"lang": "en"}


def test_every_figure_has_its_mean_its_interval_and_whether_it_differs(tmp_path: Path) -> None:
    write_run(tmp_path / "run", cells(policies=("fifo", "wfq"), repetitions=3))
    results = read(tmp_path / "run")
    text = write_report(results, tmp_path / "run").read_text()
    for policy in ("fifo", "wfq"):
        for figure, scale in (("latency_p99_ms", 1), ("throughput_per_s", 1), ("miss_rate", 100)):
            values = [scale * row.figures[figure] for row in results.cells if row.setting.policy == policy]
            assert f"<td>{interval(values)}" in text
    waits = [row.figures["latency_p99_ms"] for row in results.cells if row.setting.policy == "wfq"]
    assert f"<td>{interval(waits)}*</td>" in text
    same = [row.figures["jain_service"] for row in results.cells if row.setting.policy == "wfq"]
    assert f"<td>{interval(same)}</td>" in text


def test_the_command_and_the_machine_are_there_to_repeat_it(tmp_path: Path) -> None:
    text = page(tmp_path / "run")
    assert f"<code>{IDENTITY['command']}</code>" in text
    for value in ("valkey 9.1", "abc1234", "3.12.1", "seeds 42, 43"):
        assert value in text


def test_names_and_whatever_else_people_chose_are_text(tmp_path: Path) -> None:
    hostile = '<img src=x onerror="alert(1)">&amp;'
    directory = write_run(
        tmp_path / "run", cells(tenant=hostile, repetitions=1), identity={"command": hostile, "policy": hostile}
    )
    text = write_report(read(directory), directory, [f"{hostile} was missed."]).read_text()
    assert list(Page(text).all("img")) == []
    assert text.count("&lt;img src=x onerror=&quot;alert(1)&quot;&gt;&amp;amp;") >= 4


def test_what_is_missing_is_said_first(tmp_path: Path) -> None:
    whole = page(tmp_path / "whole", repetitions=1)
    assert "Every job of every cell is accounted for" in whole
    assert 'class="warning"' not in whole
    part = cell(ended("wfq", 1, 1), setting={"jobs": 205}, timed_out=True, lost=2, recorded_twice=1)
    text = page(tmp_path / "part", [part])
    told = "of 205 jobs 5 had not ended when its time was over, 2 were lost, 1 recorded twice"
    assert told in text[: text.index('id="plots"')]
    assert "look better than they were" in text
    assert "Every job of every cell" not in text


@pytest.mark.parametrize(
    ("setting", "more", "told"),
    [
        ({}, {}, "Nothing was repeated"),
        ({"repetition": 3}, {}, "3 repetitions give wide intervals"),
        ({"execution": "virtual"}, {}, "In virtual time"),
        ({"execution": "sleep"}, {}, "Jobs sleep"),
        ({}, {"dead_letters": [{"id": "x"}]}, "1 jobs ended as dead letters"),
    ],
)
def test_caveats_are_those_that_hold(setting: dict[str, Any], more: dict[str, Any], told: str, tmp_path: Path) -> None:
    assert told in page(tmp_path / "run", [cell(setting=setting, **more)])
    assert told not in page(tmp_path / "other", [cell(setting={"execution": "cpu", "repetition": 9})])


def test_a_sender_that_was_late_is_told(tmp_path: Path) -> None:
    late = [*ended("fifo", 1, 1)[:-1], ended("fifo", 1, 1, sent_us=10_000_000)[-1]]
    assert "The sender was late in 1 of 1 cells, at worst 8,010 ms" in page(tmp_path / "run", [cell(late)])


def test_plots_are_shown_in_order_with_how_to_read_them_and_in_words(tmp_path: Path) -> None:
    text = page(tmp_path / "run")
    assert text.index('id="plot-jain"') < text.index('id="plot-throughput"')
    assert len(re.findall("<svg ", text)) == 2
    assert HOW_TO_READ["throughput"] in text
    assert "<li>one &lt; two</li><li>three</li>" in text
    write_run(tmp_path / "bare", cells(repetitions=1))
    assert "bench plot draws them" in write_report(read(tmp_path / "bare"), tmp_path / "bare").read_text()


def test_every_plot_has_a_title_and_a_way_to_be_read() -> None:
    assert set(TITLES) == set(HOW_TO_READ) == {*plots.OF_RUNS, *plots.OF_FILES}


def test_what_two_plots_call_alike_does_not_meet_on_a_page() -> None:
    drawn = markup.inlined("jain", SVG)
    assert drawn.startswith('<svg class="jain-plot" xmlns:xlink')
    assert 'id="jain-p1"' in drawn
    assert 'xlink:href="#jain-p1" clip-path="url(#jain-p1)"' in drawn
    assert 'aria-labelledby="jain-a jain-b"' in drawn
    assert ">.jain-plot *{stroke-linejoin: round}<" in drawn


def test_the_page_is_the_same_each_time(tmp_path: Path) -> None:
    results = run(tmp_path / "run", repetitions=1)
    first = write_report(results, tmp_path / "run").read_bytes()
    assert write_report(read(tmp_path / "run"), tmp_path / "run").read_bytes() == first
