"""What of the benchmarks needs no measuring: their load, their report, the server's accounts, their options."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
import redis
from django.core.management import CommandError, call_command

from queueapp.bench.command import BenchCommand
from queueapp.bench.experiments import memory
from queueapp.bench.harness import Progress, Report, identity
from queueapp.bench.server_cost import Meter
from queueapp.store.store import Store


def test_memory_measures_jobs_as_they_are_in_earnest() -> None:
    jobs = list(memory.jobs(100, 50))
    assert {len(job.payload) for job in jobs} == {memory.PAYLOAD_BYTES}
    assert len({job.payload for job in jobs}) == 100
    assert len(memory.TASK) == 60
    assert len({job.tenant for job in jobs}) == 50
    json.loads(jobs[0].payload)


def test_memory_reports_and_judges(store: Store, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([1_000, 1_000 + 500 * 401])
    monkeypatch.setattr(memory, "settled_memory", lambda client: next(readings))
    monkeypatch.setattr(memory, "POOL", "default")
    report = Report(bench="memory", run={})
    memory.run(report, redis_client, Progress(io.StringIO()), count=500, tenants=5)
    assert report.figures["bytes_per_job"] == 401
    assert report.missed == ["A waiting job takes 401 bytes; at most 400 are promised."]


def test_a_report_is_json_with_null_for_what_is_no_number(tmp_path: Path, redis_client: redis.Redis) -> None:
    run = identity(redis_client, jobs=3)
    report = Report(bench="memory", run=run, figures={"a": 1.5, "b": math.inf, "c": None, "d": 7})
    report.write(tmp_path / "figures.json")
    written = json.loads((tmp_path / "figures.json").read_text())
    assert written["bench"] == "memory"
    assert written["figures"] == {"a": 1.5, "b": None, "c": None, "d": 7}
    assert {"at", "ductor", "python", "django", "redis_py", "server", "cpus", "jobs"} <= written["run"].keys()


def test_the_meter_counts_what_scripts_ran(redis_client: redis.Redis) -> None:
    meter = Meter(redis_client)
    for _ in range(10):
        redis_client.eval("redis.call('SET', KEYS[1], 1) redis.call('DEL', KEYS[1])", 1, "x")
    cost = meter.read()
    # The server may be shared with other processes of the test run only when DUCTOR_TEST_REDIS_URL names it.
    assert cost.commands_per(10) >= 2
    assert cost.us_per(10) > 0


def test_the_command_starts_itself_again_with_the_same_options() -> None:
    command = BenchCommand(bench="memory", jobs=5, tenants=2, starts=10, json=Path("x.json"))
    assert command.arguments() == [
        *("ductor_bench", "memory", "--jobs", "5", "--tenants", "2", "--starts", "10", "--json", "x.json")
    ]


@pytest.mark.parametrize("name", ["bench", "ductor_bench"])
def test_what_cannot_be_measured_is_refused_by_name(name: str) -> None:
    with pytest.raises(CommandError, match="'walks'"):
        call_command(name, "walks")
    with pytest.raises(CommandError, match="no whole number"):
        call_command(name, "memory", "--jobs", "1")


def test_progress_off_a_terminal_says_little() -> None:
    out = io.StringIO()
    progress = Progress(out, every_s=60)
    for number in range(1000):
        progress.show(f"{number}")
    progress.say("done")
    assert out.getvalue() == "done\n"
