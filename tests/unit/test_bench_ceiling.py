"""`bench ceiling`: the scripts that it compares, that its stages do the product's own work, how it judges."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import pytest
import redis
from django.conf import settings
from django.test.utils import override_settings

from queueapp.bench.experiments import ceiling
from queueapp.bench.experiments.ceiling import Arm
from queueapp.bench.harness import Progress, Report
from queueapp.bench.unfenced import FENCED, UnfencedStore, unfenced
from queueapp.errors import Fenced
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
    ceiling.run(report, own_client, Progress(io.StringIO()), None, jobs=500, rounds=2, policy="wfq")  # type: ignore[arg-type]  # as much of it as is asked here
    for stage in ceiling.STAGES:
        assert (report.figures[f"{stage}_per_s"] or 0) > 0
        assert (report.figures[f"{stage}_no_fence_server_us_per_job"] or 0) > 0
    calls = {"admit": 2, "dispatch": 3}  # the last one of dispatch finds nothing
    for stage, count in calls.items():
        more = report.figures[f"{stage}_commands_per_job"] - report.figures[f"{stage}_no_fence_commands_per_job"]  # type: ignore[operator]  # both were measured
        assert round(more * 500) == count
    assert own_client.keys(f"{shards.keys(ceiling.POOL).prefix}*") == []


def test_without_the_fence_a_term_that_is_over_goes_on_writing(own_client: redis.Redis) -> None:
    store = shards.store(ceiling.POOL)
    over = store.lead_acquire("a", "first", 60_000)
    store.lead_release("first")
    store.lead_acquire("b", "second", 60_000)
    with pytest.raises(Fenced):
        store.admit(over, [])
    assert UnfencedStore(store.client, store.keys).admit(over, []).admitted == 0


def arm(end_to_end_us: list[float], per_s: float) -> Arm:
    made = Arm(name="x")
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
