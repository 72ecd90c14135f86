"""`bench syncmatch` in small: both paths are measured in one worker, and the promise is judged."""

from __future__ import annotations

import io

import pytest
from django.conf import settings
from django.test.utils import override_settings

from queueapp.bench.experiments import syncmatch
from queueapp.bench.harness import Progress, Report
from queueapp.producer import matching


@pytest.mark.parametrize(("within_us", "missed"), [(1e9, 0), (0.0, 1)])
def test_it_measures_both_ways_and_judges(
    redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch, within_us: float, missed: int
) -> None:
    monkeypatch.setattr(syncmatch, "HALF_WITHIN_US", within_us)
    monkeypatch.setattr(syncmatch, "WARM", 3)  # the first one is not known to be free
    monkeypatch.setattr("queueapp.cli.logs.set_up", lambda *_: None)
    report = Report(bench="syncmatch", run={})
    pools = {"POOLS": {**settings.DUCTOR.get("POOLS", {}), syncmatch.POOL: {}}}
    with override_settings(DUCTOR={**settings.DUCTOR, **pools}):
        syncmatch.run(report, Progress(io.StringIO()), jobs=10, slots=2)
    figures = report.figures
    assert sum(figures[outcome] or 0 for outcome in ("hit", "miss_limited", "miss_buffer_full")) == 10
    assert figures["hit"], "a busy machine may miss some"
    for figure in ("matched_us_p50", "matched_us_p99", "queued_us_p50", "queued_us_p99", "matched_call_us_p50"):
        assert (figures[figure] or 0) > 0
    assert len(report.missed) == missed
    assert syncmatch.POOL not in matching._channels
