"""What of the benchmarks needs no measuring: their load, their report, the server's accounts, their options."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from django.conf import settings
from django.core.management import CommandError, call_command, load_command_class
from django.test.utils import override_settings

from queueapp.bench.catalogue import EXPERIMENTS
from queueapp.bench.command import BenchCommand
from queueapp.bench.dispatching import WAYS, conf, dispatched
from queueapp.bench.experiments import memory, walk
from queueapp.bench.harness import Progress, Report, identity
from queueapp.bench.server_cost import Meter
from queueapp.bench.waiting import until
from queueapp.policies.registry import DIRECT
from queueapp.store import connection, shards
from queueapp.store.embedded import EmbeddedServer
from queueapp.store.reads import Reads
from queueapp.store.records import NewJob
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
    assert "rows" not in written
    assert written["figures"] == {"a": 1.5, "b": None, "c": None, "d": 7}
    assert {"at", "ductor", "python", "django", "redis_py", "server", "cpus", "jobs"} <= written["run"].keys()


def test_a_report_has_the_rows_of_its_cells_and_needs_no_server(tmp_path: Path) -> None:
    report = Report(bench="simulate", run=identity(None, seed=1))
    report.rows.append({"policy": "wfq", "tenants": {"ant": {"wait_ms": math.nan, "jobs": 2}}, "all": [0.123456]})
    report.write(tmp_path / "figures.json")
    written = json.loads((tmp_path / "figures.json").read_text())
    assert written["rows"] == [{"policy": "wfq", "tenants": {"ant": {"wait_ms": None, "jobs": 2}}, "all": [0.1235]}]
    assert (written["run"]["server"], written["run"]["seed"]) == (None, 1)


def test_the_meter_counts_what_scripts_ran(redis_client: redis.Redis) -> None:
    meter = Meter(redis_client)
    for _ in range(10):
        redis_client.eval("redis.call('SET', KEYS[1], 1) redis.call('DEL', KEYS[1])", 1, "x")
    cost = meter.read()
    # The server may be shared with other processes of the test run only when DUCTOR_TEST_REDIS_URL names it.
    assert cost.commands_per(10) >= 2
    assert cost.us_per(10) > 0


def test_the_command_starts_itself_again_with_the_same_options() -> None:
    command = BenchCommand(bench="walk", options={"policy": "wfq", "jobs": 5_000}, json=Path("x.json"))
    words = command.arguments()
    assert words == ["ductor_bench", "walk", "--policy", "wfq", "--jobs", "5000", "--json", "x.json"]
    parsed = vars(load_command_class("queueapp", "bench").create_parser("manage.py", "bench").parse_args(words[1:]))
    assert {name: parsed[name] for name in ("bench", *command.options)} == {"bench": "walk", **command.options}


@pytest.mark.parametrize("name", ["bench", "ductor_bench"])
def test_what_cannot_be_measured_is_refused_by_name(name: str) -> None:
    with pytest.raises(CommandError, match="'walks'"):
        call_command(name, "walks")
    with pytest.raises(CommandError, match="no whole number"):
        call_command(name, "memory", "--jobs", "1")
    with pytest.raises(CommandError, match="'lottery'"):
        call_command(name, "walk", "--policy", "lottery")
    with pytest.raises(CommandError, match="unrecognized arguments: --starts"):
        call_command(name, "walk", "--starts", "10")


def test_walk_offers_exactly_what_a_lease_decides_by_itself() -> None:
    [offered] = [option.choices for option in EXPERIMENTS["walk"].options if option.name == "policy"]
    assert set(offered or ()) == DIRECT


TINY = walk.Sizes(policy="fifo", tenants=20, jobs=1_500, blocked=15, rounds=2, want=4)


@pytest.fixture
def own_client(own_server: Callable[..., EmbeddedServer]) -> Iterator[redis.Redis]:
    """A server that may be emptied, as the benchmark does."""
    server = own_server()
    with override_settings(DUCTOR={**settings.DUCTOR, "REDIS_URL": server.url}):
        connection.reset()
        shards.forget()
        client = redis.Redis.from_url(server.url, protocol=2)
        yield client
        client.close()


def test_walk_measures_pools_that_differ_in_one_thing(own_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def look(self: walk._Comparison, what: str, less: walk.Side, more: walk.Side) -> None:
        for side in (less, more):
            overview = Reads(own_client, side.store.keys).overview()
            seen[side.name] = (overview.tenant_count, overview.waiting, overview.active)
            assert len(side.server_us) == len(side.wall_us) == TINY.rounds
            assert side.store.verify() == []
            assert own_client.hget(side.store.keys["conf"], "policy") == b"fifo"
        tell(self, what, less, more)

    tell = walk._Comparison._tell
    monkeypatch.setattr(walk._Comparison, "_tell", look)
    report = Report(bench="walk", run={})
    walk.run(report, own_client, Progress(io.StringIO()), TINY)

    assert seen == {
        "tenants_10": (10, 1_000, 0),
        "tenants_20": (20, 1_000, 0),
        "backlog_1000": (10, 1_000, 0),
        "backlog_1500": (10, 1_500, 0),
        "blocked_0": (10, 1_000, 0),
        "blocked_15": (25, 1_015, 15),
    }
    for what in walk.LIMITS:
        for name in (f"ratio_{what}", f"wall_ratio_{what}"):
            assert (report.figures[name] or 0) > 0
    for name in ("blocked_15_server_us", "blocked_15_wall_us", "blocked_15_commands"):
        assert (report.figures[name] or 0) > 0


def test_walk_judges_by_the_servers_time() -> None:
    report = Report(bench="walk", run={})
    comparison = walk._Comparison(report, None, Progress(io.StringIO()), TINY)  # type: ignore[arg-type]  # as much of it as is asked here
    for what, limit in walk.LIMITS.items():
        for much, factor in ((2, limit), (3, limit + 0.01)):
            less = walk.Side(name=f"{what}_1", store=None, server_us=[9, 10, 90])  # type: ignore[arg-type]  # as much of it as is asked here
            more = walk.Side(name=f"{what}_{much}", store=None, server_us=[10 * factor])  # type: ignore[arg-type]  # as much of it as is asked here
            less.wall_us, more.wall_us = [1], [99]
            comparison._tell(what, less, more)
    assert report.missed == [
        "From tenants_1 to tenants_3 a dispatch takes 1.51 times as long; at most 1.5 times are promised.",
        "From backlog_1 to backlog_3 a dispatch takes 1.51 times as long; at most 1.5 times are promised.",
        "From blocked_1 to blocked_3 a dispatch takes 1.31 times as long; at most 1.3 times are promised.",
    ]


def test_progress_off_a_terminal_says_little() -> None:
    out = io.StringIO()
    progress = Progress(out, every_s=60)
    for number in range(1000):
        progress.show(f"{number}")
    progress.say("done")
    assert out.getvalue() == "done\n"


@pytest.mark.parametrize("way", WAYS)
def test_a_pool_of_a_benchmark_dispatches_as_it_is_told(redis_url: str, way: str) -> None:
    store, reads, before = shards.store("bench"), shards.reads("bench"), set(threading.enumerate())
    new = [NewJob(id=f"{n:022d}", task="t", tenant=f"t{n // 4}", payload=b"{}", fingerprint="f") for n in range(8)]
    leased: list[str] = []
    with dispatched(["bench"], way):
        assert reads.configured() == conf(way)
        store.register("w1", {"slots": "8"}, 60_000)
        store.enqueue(new)
        end = time.monotonic() + 30
        while len(leased) < 8 and time.monotonic() < end:
            call = time.monotonic_ns()
            leased += [job.id for job in store.check_and_lease("w1", call, want=8, begin=0, lease_ms=60_000).jobs]
    ids = [job.id for job in new]
    assert sorted(leased) == ids
    assert (leased == ids) == (way == "none"), "the control arm alone takes them as they came"
    # Not their number: a thread of an earlier test may end meanwhile.
    assert set(threading.enumerate()) <= before, "its scheduler's threads have ended"


@pytest.mark.parametrize("end", ["notice = weakref.ref(thing, fall)", "Thing.__del__ = fall"])
def test_a_signal_that_falls_where_python_only_prints_what_is_raised_is_not_lost(end: str) -> None:
    """A callback of a weak reference, of whatever name, and a `__del__`; the program goes on behind both."""
    program = f"""
import os, signal, time, weakref
from queueapp.bench.ground import ending
from queueapp.bench.waiting import until
class Thing: pass
def fall(_): os.kill(os.getpid(), signal.SIGTERM)
thing = Thing()
{end}
try:
    with ending():
        del thing
        time.sleep(20)
except KeyboardInterrupt:
    print("ended")
assert signal.getsignal(signal.SIGTERM) == signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
"""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "ductor_project.settings"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert (done.stdout, done.returncode) == ("ended\n", 0), done.stderr


@pytest.mark.parametrize(("within_s", "goes_on"), [(0.0, True), (60.0, False)])
def test_a_wait_ends_with_what_it_waited_for_or_says_why_not(within_s: float, goes_on: bool) -> None:
    """Over time, or as soon as it cannot come about any more."""
    looks = iter([False, False, True])
    until(lambda: next(looks), lambda: "never said")
    assert list(looks) == []
    with pytest.raises(RuntimeError, match=r"^The worker did not start\.$"):
        until(lambda: False, lambda: "The worker did not start.", within_s=within_s, goes_on=lambda: goes_on)
