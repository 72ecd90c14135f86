"""`report.html`: a run on one page that needs nothing else: figures, plots, tables, how to repeat it. No matplotlib."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from queueapp.bench.intervals import change, interval
from queueapp.bench.plots import OF_FILES, OF_RUNS, PLOTS, markup
from queueapp.bench.plots.caveats import caveats, part_of_the_jobs
from queueapp.bench.plots.series import Arm, Series
from queueapp.bench.plots.words import HOW_TO_READ, TITLES
from queueapp.bench.results.manifest import Made
from queueapp.bench.results.reading import RunResults
from queueapp.bench.results.summary import SHOWN

REPORT = "report.html"
PERCENT = frozenset({"miss_rate", "utilisation"})
MOST_TENANTS = 30
"""Of a table: with more, those that wait longest."""
BASE = "fifo"


def write_report(results: RunResults, directory: Path, missed: Sequence[str] = ()) -> Path:
    """The page, with the plots in `directory`/plots; `missed`: a sentence for each promise that was not kept."""
    series = Series(results)
    parts = [
        ("glance", "At a glance", _glance(series, missed)),
        ("plots", "Plots", "".join(_plots(directory / PLOTS))),
        ("figures", "Figures", "".join(_figures(series, all_loads=True))),
        ("tenants", "Tenants", "".join(_tenants(series))),
        ("caveats", "What to bear in mind", markup.bullets(caveats(results))),
        ("repeat", "How to repeat it", "".join(_repeat(results))),
    ]
    known = [part for part in parts if part[2]]
    title = f"bench {results.bench}: {', '.join(series.workloads) or 'no cells'}"
    body = markup.header(title, _subtitle(series)) + markup.contents((name, told) for name, told, _ in known)
    body += "<main>\n" + "".join(markup.section(*part) for part in known) + "</main>"
    path = directory / REPORT
    path.write_text(markup.page(title, body), encoding="utf-8")
    return path


def _subtitle(series: Series) -> str:
    return series.conditions(series.workloads, swept=True) if series.arms else "No cell has a job that is done with."


# -- sections --------------------------------------------------------------------------------------------------------


def _glance(series: Series, missed: Sequence[str]) -> str:
    found = [*missed, *part_of_the_jobs(series.results.cells)]
    told = markup.warning("Not as promised, or not complete", found) if found else ""
    if not found:
        told = markup.paragraph(
            "Every job of every cell is accounted for: none is lost, unfinished, or recorded twice."
        )
    return told + "".join(_figures(series, all_loads=False))


def _figures(series: Series, *, all_loads: bool) -> Iterator[str]:
    """A table for each workload: at the load of the plots, or, where there are more, at all the others."""
    first = True
    for workload in series.workloads:
        for load in series.loads(workload):
            if (load == series.load(workload)) == all_loads:
                continue
            if first:
                yield markup.paragraph(_legend(series), "quiet")
                first = False
            rows = [
                [series.label(arm), *(_cell(series, arm, workload, load, figure) for figure in SHOWN)]
                for arm in series.arms
                if series.rows(arm, workload, load)
            ]
            headings = ["policy", *SHOWN.values()]
            yield markup.table(f"{workload.replace('_', ' ')}, load {load:.3g}", headings, rows)


def _legend(series: Series) -> str:
    told = "Means over the repetitions, ± their 95 % interval (Student); - where there is none or the jobs are too few."
    if any(arm.policy == BASE for arm in series.arms) and not series.once:
        told += f" * differs from {BASE} beyond noise, seed by seed (by chance in one of twenty)."
    return told


def _cell(series: Series, arm: Arm, workload: str, load: float, figure: str) -> str:
    values = [row.figures[figure] for row in series.rows(arm, workload, load)]
    scale = 100 if figure in PERCENT else 1
    told = f"{interval(scale * value for value in values)}{' %' if figure in PERCENT else ''}"
    return told.replace("- %", "-") + ("*" if _differs(series, arm, workload, load, figure) else "")


def _differs(series: Series, arm: Arm, workload: str, load: float, figure: str) -> bool:
    """From the same seeds under fifo, dispatched the same way."""
    own = {row.setting.seed: row.figures[figure] for row in series.rows(arm, workload, load)}
    base = {row.setting.seed: row.figures[figure] for row in series.rows(Arm(BASE, arm.dispatch), workload, load)}
    seeds = sorted(own.keys() & base.keys())
    return arm.policy != BASE and change([base[seed] for seed in seeds], [own[seed] for seed in seeds]).detected


def _plots(directory: Path) -> Iterator[str]:
    none = True
    for name in (*OF_RUNS, *OF_FILES):
        path = directory / f"{name}.svg"
        if path.is_file():
            none = False
            svg = path.read_text(encoding="utf-8")
            yield markup.heading(f"plot-{name}", TITLES[name])
            yield markup.picture(name, svg, HOW_TO_READ[name], markup.described(svg))
    if none:
        yield markup.paragraph("There are none: bench plot draws them, with pip install django-ductor[bench].")


def _tenants(series: Series) -> Iterator[str]:
    """Waits and latencies of each tenant, for each workload and arm, folded."""
    for workload in series.workloads:
        if series.tenant_count(workload) < 2:
            continue
        rows = [row for arm in series.present(workload) for row in _tenant_rows(series, arm, workload)]
        headings = ["tenant", "policy", "jobs", "p50 wait ms", "p95 wait ms", "p95 latency ms", "service s"]
        title = f"{workload.replace('_', ' ')}, load {series.load(workload):.3g}"
        yield markup.folded(title, markup.table(f"Tenants of {title}", headings, rows))


def _tenant_rows(series: Series, arm: Arm, workload: str) -> list[list[str]]:
    columns = [
        series.tenants(arm, workload, time)
        for time in ("jobs", "wait_p50_ms", "wait_p95_ms", "latency_p95_ms", "service_s")
    ]
    waits = {tenant: interval(columns[1].get(tenant, [0.0])).mean for tenant in columns[0]}
    names = sorted(columns[0], key=lambda tenant: (-waits[tenant], tenant))[:MOST_TENANTS]
    big = series.big(workload)
    return [
        [
            f"{tenant} (big)" if tenant == big else tenant,
            series.label(arm),
            *(str(interval(column.get(tenant, ()))) for column in columns),
        ]
        for tenant in sorted(names)
    ]


def _repeat(results: RunResults) -> Iterator[str]:
    for run in results.runs:
        yield markup.heading(f"run-{run.id}", run.id)
        if command := run.identity.get("command"):
            yield markup.code(str(command))
        yield markup.table("Who measured, with what", ["", "value"], _known(run), words=True)
        if run.profile is not None:
            yield markup.folded("The profile", markup.code(json.dumps(run.profile, indent=1, sort_keys=True)))
    seeds = sorted({cell.setting.seed for cell in results.cells})
    if seeds:
        told = f"{len(results.cells)} cells; seeds {', '.join(map(str, seeds))}. manifest.json has every setting."
        yield markup.paragraph(told)


def _known(run: Made) -> list[list[str]]:
    """All that the manifest says of a run, an option that was not given left out."""
    told = {name: value for name, value in run.identity.items() if name != "command"} | dict(run.options)
    return [
        [name.replace("_", " "), value if isinstance(value, str) else json.dumps(value)]
        for name, value in told.items()
        if value is not None
    ]
