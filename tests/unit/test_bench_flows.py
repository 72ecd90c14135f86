"""`bench flows` in small: each part measures and judges; what it counts of a step is pinned."""

from __future__ import annotations

import io
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.test.utils import override_settings

from flows import models
from flows.snapshot import ITEMS_PER_TICK, NOTHING, ItemReport, Run, Snapshot, StepRun
from flows.steps import StepWrapper
from queueapp.bench import flow_work
from queueapp.bench.catalogue import EXPERIMENTS
from queueapp.bench.experiments import flows_crowd, flows_fan, flows_overhead
from queueapp.bench.experiments.flows_overhead import Body, Timeline
from queueapp.bench.experiments.flows_plan import PARTS, Plan, parts_of
from queueapp.bench.harness import Progress, Report
from queueapp.bench.listening import heard
from queueapp.producer import matching
from queueapp.producer.handover import Order

QUERIES_PER_STEP = {"matched": 5, "queued": 8}
"""The run, two steps and a command written, and the command taken away; through the queue whether it is wanted, the run
and its steps are read before. One more is a thing to explain."""
TRANSACTIONS_PER_STEP = 2


def in_thread(then: Callable[[], None]) -> None:
    """Its connections are new ones, and closed at its end."""

    def whole() -> None:
        then()
        connections.close_all()

    thread = threading.Thread(target=whole)
    thread.start()
    thread.join()


class Ear:
    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []
        self.commits = 0

    def queried(self, sql: str, in_transaction: bool, begun_s: float, ended_s: float) -> None:
        assert begun_s <= ended_s
        self.asked.append((sql.split()[0], in_transaction))

    def committed(self, begun_s: float, ended_s: float) -> None:
        assert begun_s <= ended_s
        self.commits += 1


@pytest.fixture
def report() -> Report:
    return Report(bench="flows", run={})


@pytest.fixture
def pools(redis_url: str, namespace: str) -> Iterator[None]:
    own: dict[str, dict[str, object]] = {name: {} for name in (flow_work.CHAIN, flow_work.CROWD, flow_work.FAN)}
    with override_settings(DUCTOR={**settings.DUCTOR, "POOLS": {**settings.DUCTOR.get("POOLS", {}), **own}}):
        yield


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("pools")
def test_it_measures_what_lies_between_two_steps(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows_overhead, "WARM", 1)
    monkeypatch.setattr("queueapp.cli.logs.set_up", lambda *_: None)
    flows_overhead.run(report, Progress(io.StringIO()), rounds=4, steps=8)
    figures = report.figures
    for kind in flows_overhead.KINDS:
        for figure in ("net_ms_p50", "net_ms_p99", "ms_p50", "ms_p99", "record_ms_p50", "relay_ms_p50"):
            assert (figures[f"{kind}_{figure}"] or 0) > 0
    assert (figures["queries_per_step"] or 0) > QUERIES_PER_STEP["matched"] - 1, "on a busy machine they are more"
    assert (figures["transactions_per_step"] or 0) > TRANSACTIONS_PER_STEP - 1
    assert (figures["matched_pct"] or 0) > 0, "a busy machine may miss some"
    assert models.Run.objects.filter(state="completed").count() == 2 * 5
    assert flow_work.CHAIN not in matching._channels


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("pools")
@pytest.mark.parametrize("steps", [5, 50])
@pytest.mark.parametrize("way", [*QUERIES_PER_STEP])
def test_a_plain_step_costs_so_many_statements_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch, steps: int, way: str
) -> None:
    """From its body, or the question whether that is wanted, until its command is carried out; the hand-over itself has
    none. In the process that handed it over it brings along what was written of its run."""
    handed: dict[str, Any] = {}

    def hand_over(orders: Sequence[Order]) -> list[None]:
        handed.update((order.facts[1], order.local) for order in orders if order.wrapper)
        return [None] * len(orders)

    monkeypatch.setattr("flows.dispatch.hand_over", hand_over)
    monkeypatch.setattr("flows.steps.NEWS_S", math.inf)
    run = flow_work.chain(flow_work.CHAIN, steps).using(tenant="runs").start(0)
    ear = Ear()

    def work(*numbers: int) -> None:
        for number in numbers:
            name = f"step-{number:03}"
            local = handed[name] if way == "matched" else None
            StepWrapper().around([run.id, name, 1, -1], lambda: None, local)

    def work_and_be_heard() -> None:
        work(0, 1)
        with heard(ear):
            connections.close_all()
            work(2)

    in_thread(work_and_be_heard)
    words = [word for word, _ in ear.asked if word not in ("BEGIN", "PRAGMA")]
    assert len(words) == QUERIES_PER_STEP[way], words
    alone = sum(not within and word not in ("SELECT", "BEGIN", "PRAGMA") for word, within in ear.asked)
    assert ear.commits + alone == TRANSACTIONS_PER_STEP


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("pools")
def test_it_watches_every_tick_of_many_items(report: Report) -> None:
    flows_fan.run(report, Progress(io.StringIO()), items=30)
    figures = report.figures
    assert figures["items_completed"] == 30
    assert 1 <= (figures["tick_rows_shown_max"] or 0) <= 33
    for figure in ("ticks", "tick_rows_written_max", "tick_queries_max", "items_per_s"):
        assert (figures[figure] or 0) > 0
    flows_fan.judge(report)
    assert report.missed == []


def body(thread: int, began_s: float, ended_s: float) -> Body:
    return Body(thread=thread, began_s=began_s, ended_s=ended_s)


@pytest.mark.parametrize("ticks", [7, 9])
def test_the_parts_of_a_passage_add_up(ticks: int) -> None:
    """Whoever makes the tick: the thread of the body, or another one that had the turn."""
    timeline = Timeline(
        queries={7: [(0.9, 0.95, "SELECT", False), (1.001, 1.002, "BEGIN", False), (1.003, 1.004, "UPDATE", True)]},
        commits={8: [(0.5, 0.6)], ticks: [(1.010, 1.013)]},
    )
    [passage] = flows_overhead.passages([body(7, 0.9, 1.0), body(8, 1.014, 1.02)], timeline)
    found = (passage.whole, passage.record, passage.begin, passage.commit, passage.relay, passage.net)
    assert found == pytest.approx((14, 10, 2, 3, 1, 11))
    early = [body(7, 0.9, 1.0), body(8, 1.011, 1.02)]
    with pytest.raises(LookupError, match="before the end of the one before it was committed"):
        list(flows_overhead.passages(early, timeline))


def test_statements_and_writes_are_counted_from_the_first_body_s_end_to_the_last_one_s() -> None:
    def asked(*moments: float, word: str = "SELECT", within: bool = True) -> list[tuple[float, float, str, bool]]:
        return [(moment, moment, word, within) for moment in moments]

    before, after = asked(0.5, 0.99), asked(8.6)
    begins = asked(1.1, 3.0, word="BEGIN", within=False)
    alone = asked(1.5, word="DELETE", within=False)
    timeline = Timeline(
        queries={7: [*before, *begins, *asked(1.2, 1.3), *alone, *after], 8: asked(1.6, 5.0, 8.3)},
        commits={7: [(0.2, 0.3), (1.4, 1.45)], 8: [(3.1, 3.2), (4.1, 4.2)]},
    )
    run = [body(7, 0.9, 1.0), body(8, 2.0, 2.1), body(7, 8.0, 8.5)]
    assert flows_overhead.counts([run], timeline) == (6 / 2, 4 / 2)


@pytest.mark.parametrize(("matched", "queued", "missed"), [(1.0, 10.0, 0), (1.01, 10.0, 1), (1.01, 10.01, 2)])
def test_a_slow_step_is_a_promise_missed(report: Report, matched: float, queued: float, missed: int) -> None:
    report.figures |= {"matched_net_ms_p50": matched, "queued_net_ms_p50": queued}
    flows_overhead.judge(report)
    assert len(report.missed) == missed


@pytest.mark.parametrize(("ratio", "missed"), [(1.99, 0), (2.0, 1), (float("nan"), 1)])
def test_a_wait_twice_as_long_under_a_flood_is_a_promise_missed(report: Report, ratio: float, missed: int) -> None:
    report.figures["wait_ratio"] = ratio
    flows_crowd.judge(report)
    assert len(report.missed) == missed


def test_a_tick_that_grows_with_the_items_and_a_missing_item_are_promises_missed(report: Report) -> None:
    most = ITEMS_PER_TICK + flows_fan.OWN_ROWS
    report.figures |= {"tick_rows_shown_max": most, "tick_rows_written_max": most, "items": 9, "items_completed": 9}
    flows_fan.judge(report)
    assert report.missed == []
    report.figures |= {"tick_rows_shown_max": most + 1, "tick_rows_written_max": most + 1, "items_completed": 8}
    flows_fan.judge(report)
    assert len(report.missed) == 3


def test_what_ticks_were_shown_is_the_most_of_all() -> None:
    ticks = flows_fan.Ticks()
    run = Run(id="r", flow="f", definition="d", input={})
    small = Snapshot(run=run, steps={"a": StepRun(step="a")})
    items = tuple(ItemReport(index=index, attempt=1, ending="completed") for index in range(7))
    for snapshot in (small, replace(small, items={"a": items}), small):
        ticks.ticked(snapshot, NOTHING)
    assert (ticks.number, ticks.shown, ticks.written) == (3, 9, 0)


@pytest.mark.django_db(transaction=True)
def test_what_a_thread_asks_meanwhile_is_heard_and_nothing_of_it_afterwards() -> None:
    def ask() -> None:
        with transaction.atomic():
            models.Event.objects.filter(name="none").delete()
        models.Event.objects.exists()

    def outlive() -> None:
        with heard(ear):
            ask()
        ask()

    ear = Ear()
    with heard(ear):
        in_thread(ask)
    assert [part for part in ear.asked if part[0] != "BEGIN"] == [("DELETE", True), ("SELECT", False)]
    assert ear.commits == 1
    in_thread(ask)
    assert ear.commits == 1
    in_thread(outlive)
    assert ear.commits == 2
    assert sum(word == "DELETE" for word, _ in ear.asked) == 2


def test_parts_are_named_or_refused() -> None:
    assert parts_of("all") == list(PARTS)
    assert parts_of("fan, overhead,fan") == ["fan", "overhead"]
    with pytest.raises(CommandError, match="'fans' is no part: give some of overhead, crowd, fan"):
        call_command("bench", "flows", "--parts", "fan,fans")


def test_the_command_line_offers_what_a_plan_has() -> None:
    offered = {option.key: option.default for option in EXPERIMENTS["flows"].options}
    assert Plan(**offered) == Plan()
