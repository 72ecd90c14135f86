"""`bench ceiling`: the scripts that it compares, that its stages do the product's own work, how it judges."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from django.conf import settings
from django.test.utils import override_settings

from queueapp.bench.experiments import ceiling
from queueapp.bench.experiments.ceiling import Arm
from queueapp.bench.harness import Progress, Report
from queueapp.bench.unfenced import FENCED, UnfencedStore, unfenced
from queueapp.errors import Fenced
from queueapp.scheduler import dispatching
from queueapp.store import connection, scripts, shards
from queueapp.store.embedded import EmbeddedServer


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


def test_what_is_compared_are_all_writes_of_a_leader_and_they_differ_in_the_question_alone() -> None:
    assert {name for name in scripts.names() if '@include "fence"' in scripts.source(f"{name}.lua")} == FENCED
    for name in FENCED:
        fenced, bare = scripts.script(name), unfenced(name)
        asked = b"if is_over(ARGV[3], ARGV[4]) then\nreturn {0, 'fenced'}\nend\n"
        assert fenced.text.replace(asked, b"") == bare.text
        assert fenced.text.count(asked) == 1
        assert (bare.arguments, bare.groups) == (fenced.arguments, fenced.groups)
        assert bare.function != fenced.function


def test_a_script_that_asks_in_other_words_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"enqueue\.lua does not ask"):
        unfenced("enqueue")


def test_both_arms_take_all_jobs_through_and_differ_in_one_command_a_call(
    own_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceiling, "_chain", lambda *arguments: None)
    report = Report(bench="ceiling", run={})
    options: dict[str, Any] = {"jobs": 500, "rounds": 2, "policy": "wfq", "batches": "50,250"}
    ceiling.run(report, own_client, Progress(io.StringIO()), None, **options)  # type: ignore[arg-type]  # as much of it as is asked here
    assert [(row["batch"], row["fence"], row["rounds"]) for row in report.rows] == [
        (50, "live", 2),
        (50, "inert", 2),
        (250, "live", 2),
        (250, "inert", 2),
    ]
    for live, inert, calls in zip(report.rows[::2], report.rows[1::2], (10, 2), strict=True):
        # The last call of dispatch finds nothing; a leader's own rounds end with one, too.
        asked = {"admit": calls, "dispatch": calls + 1, "end_to_end": 2 * calls + 1}
        for stage, count in asked.items():
            assert live[f"{stage}_per_s"] > 0
            assert inert[f"{stage}_server_us_per_job"] > 0
            more = live[f"{stage}_commands_per_job"] - inert[f"{stage}_commands_per_job"]
            assert (stage, round(more * 500)) == (stage, count)
        assert inert["fence_cost_pct"] is None
    full, bare = report.rows[2:]
    assert report.figures["end_to_end_per_s"] == full["end_to_end_per_s"]
    assert report.figures["dispatch_no_fence_per_s"] == bare["dispatch_per_s"]
    assert report.figures["fence_cost_pct"] == full["fence_cost_pct"]
    assert own_client.keys(f"{shards.keys(ceiling.POOL).prefix}*") == []

    without_full = Report(bench="ceiling", run={})
    options |= {"jobs": 100, "rounds": 1, "batches": "50"}
    ceiling.run(without_full, own_client, Progress(io.StringIO()), None, **options)  # type: ignore[arg-type]  # as much of it as is asked here
    assert without_full.figures.keys() == report.figures.keys()
    assert all(value is None or math.isnan(value) for value in without_full.figures.values())
    assert without_full.missed == []


def test_a_leader_calls_for_so_many_jobs_and_has_its_own_number_again() -> None:
    """The numbers are those that a leader's rounds ask for: any of another name would change nothing."""
    assert {name for name in vars(dispatching) if re.fullmatch(r"(ADMIT|DISPATCH)_MOST", name)} == set(ceiling.BOUNDS)
    with ceiling.calls_of(25):
        assert {getattr(dispatching, name) for name in ceiling.BOUNDS} == {25}
    with pytest.raises(ValueError, match="invalid literal"), ceiling.calls_of(25):
        int("x")
    assert {name: getattr(dispatching, name) for name in ceiling.BOUNDS} == ceiling.BOUNDS


def test_batches_are_at_most_what_a_leader_takes() -> None:
    assert ceiling.batches_of("25, 100,250,25") == [25, 100, 250]
    for text in ("0", "251", "x", "25,", "-1"):
        with pytest.raises(ValueError, match=r"is no batch: give jobs of one call, from 1 to 250"):
            ceiling.batches_of(text)


def test_without_the_fence_a_term_that_is_over_goes_on_writing(own_client: redis.Redis) -> None:
    store = shards.store(ceiling.POOL)
    over = store.lead_acquire("a", "first", 60_000)
    store.lead_release("first")
    store.lead_acquire("b", "second", 60_000)
    with pytest.raises(Fenced):
        store.admit(over, [])
    assert UnfencedStore(store.client, store.keys).admit(over, []).admitted == 0


def arm(end_to_end_us: list[float], per_s: float, batch: int = ceiling.FULL) -> Arm:
    made = Arm(batch=batch, fence="live")
    for stage in ceiling.STAGES:
        made.per_s[stage], made.commands[stage] = [per_s], [5.0]
        made.server_us[stage] = end_to_end_us if stage == "end_to_end" else [900.0] * len(end_to_end_us)
    return made


@pytest.mark.parametrize(
    ("fence_us", "bare_us", "per_s", "missed"),
    [
        ([10.1, 10.1, 30.0], [10.0, 10.0, 10.0], 25_000.0, []),
        ([10.3, 10.3, 10.3], [10.0, 10.0, 10.0], 25_000.0, ["fence adds 3.00 %"]),
        ([10.0, 20.0, 20.0], [10.0, 10.0, 10.0], 25_000.0, []),
        ([10.0, 10.0, 10.0], [10.0, 10.0, 10.0], 24_999.0, ["24,999 jobs/s from ingress to ready"]),
    ],
    ids=["kept", "dear", "a busy machine", "slow"],
)
def test_it_judges_the_whole_way_and_the_fence(
    fence_us: list[float], bare_us: list[float], per_s: float, missed: list[str]
) -> None:
    report = Report(bench="ceiling", run={})
    ceiling.judge(report, Progress(io.StringIO()), arm(fence_us, per_s), arm(bare_us, 99_999.0))
    assert len(report.missed) == len(missed)
    assert all(part in text for part, text in zip(missed, report.missed, strict=True))
    assert report.figures["end_to_end_per_s"] == per_s


def test_of_smaller_calls_nothing_is_promised_and_figures_are_of_full_ones() -> None:
    report = Report(bench="ceiling", run={})
    ceiling.judge(report, Progress(io.StringIO()), arm([20.0], 7.0, 25), arm([10.0], 8.0, 25))
    assert (report.missed, report.figures) == ([], {})
    assert [(row["batch"], row["end_to_end_per_s"], row["fence_cost_pct"]) for row in report.rows] == [
        (25, 7.0, 100.0),
        (25, 8.0, None),
    ]
