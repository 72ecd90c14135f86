"""The sweep: runs that nobody looks at are found, none hides others, nothing piles up, old ones are forgotten."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import redis
from django.test import override_settings

from flows import dispatch, models, runtime, sweep, waking
from flows.snapshot import Timer
from flows.sweep import FORGOTTEN, LATE_MS, PAGE, SELDOM_MS, UNRELAYED_MS, Sweep
from queueapp.conf import settings
from queueapp.errors import StoreUnavailable
from queueapp.moments import now_ms
from tests.flows import host
from tests.working import work

pytestmark = pytest.mark.django_db(transaction=True)
LATER_MS = 10 * 60_000


@pytest.fixture(autouse=True)
def _fresh() -> None:
    host.forget()


def flush(client: redis.Redis, namespace: str) -> None:
    """The store is lost, with all that this test has in it."""
    for key in client.scan_iter(f"*{namespace}*", count=1_000):
        client.delete(key)


def late_runs(number: int, prefix: str = "r") -> None:
    models.Run.objects.bulk_create(
        models.Run(id=f"{prefix}{index:04}", flow="f", definition="v", tenant="t", pool="default", input={},
                   started_ms=1, watch_ms=1)
        for index in range(number)
    )  # fmt: skip


@pytest.mark.parametrize("works_before", [0, 1])
def test_a_run_whose_store_was_lost_ends_all_the_same(
    redis_client: redis.Redis, namespace: str, works_before: int
) -> None:
    run = host.fan.start(5)
    if works_before:
        with patch.object(dispatch, "hand_over", lambda orders: [None for _ in orders]):
            work()  # the list is made, and its items get lost on their way
    flush(redis_client, namespace)
    work()
    assert run.refresh().state == "running"
    later = now_ms() + LATER_MS
    assert sweep.sweep(later) == [run.id]
    with patch.object(runtime, "now_ms", lambda: later):
        work(slots=2)
    assert run.refresh().output == 20
    assert max(host.RAN.values()) == 1


def test_a_sleeper_whose_timer_was_lost_wakes(redis_client: redis.Redis, namespace: str) -> None:
    run = host.patient.start(1)
    run.send_event("go", {"more": 4})
    flush(redis_client, namespace)
    later = now_ms() + LATER_MS
    sweep.sweep(later)
    with patch.object(runtime, "now_ms", lambda: later):
        work()
    assert run.refresh().output == 5


def test_what_a_dead_process_left_undone_is_found_soon() -> None:
    with patch.object(runtime, "_begin"):
        run = host.chain.start(1)
    assert sweep.sweep(now_ms()) == []
    assert sweep.sweep(now_ms() + UNRELAYED_MS + 1) == [run.id]
    work()
    assert run.refresh().output == 12


def test_runs_that_wait_are_left_alone() -> None:
    host.patient.start(1)
    assert sweep.sweep(now_ms() + 60_000) == []


def test_a_page_of_runs_that_cannot_be_helped_does_not_hide_the_next() -> None:
    late_runs(PAGE + 3)
    duty = Sweep()
    woken: list[str] = []
    with patch.object(sweep, "wake", lambda run_id, pool, once: woken.append(run_id)):
        assert duty.run() > 0, "it does not spin"
        assert len(woken) == PAGE
        duty.run()
        assert len(set(woken)) == PAGE + 3
        duty.run()
    assert len(woken) == 2 * PAGE + 3, "then from the start"


def test_wake_ups_of_a_run_that_nobody_helps_become_rare() -> None:
    late_runs(1)
    wanted: set[str] = set()
    with patch.object(sweep, "wake", lambda run_id, pool, once: wanted.add(once)):
        for now in [*range(LATE_MS + 2, SELDOM_MS, 20_000), *range(SELDOM_MS, 24 * SELDOM_MS, SELDOM_MS // 4)]:
            sweep.sweep(now)
    assert 23 <= len(wanted) <= 23 + 10, "so many hours, and before them twice the time after each"


def test_a_run_that_cannot_be_woken_keeps_no_other_from_it() -> None:
    late_runs(3)
    models.Run.objects.filter(pk="r0000").update(pool="away")
    woken: list[str] = []

    def refuses(run_id: str, pool: str, once: str) -> None:
        if pool == "away":
            raise StoreUnavailable("It is away.")
        woken.append(run_id)

    with patch.object(sweep, "wake", refuses):
        assert len(sweep.sweep(now_ms())) == 3
        models.Run.objects.update(pool="away")
        with pytest.raises(StoreUnavailable):
            sweep.sweep(now_ms())
    assert woken == ["r0001", "r0002"]


def test_a_wake_up_that_is_found_again_is_there_once() -> None:
    late_runs(1)
    for _ in range(3):
        sweep.sweep(LATE_MS + 2_000)
    with patch.object(runtime, "look"):
        assert work() == 1


def test_old_runs_are_forgotten_with_all_that_is_theirs() -> None:
    old, young, going = host.fan.start(3), host.fan.start(3), host.patient.start(1)
    work()
    going.send_event("never", 1)
    now = now_ms()
    models.Run.objects.filter(pk=old.id).update(ended_ms=now - settings.runs_ttl_ms - 1)
    assert sweep.forget(now) == 1
    assert set(models.Run.objects.values_list("id", flat=True)) == {young.id, going.id}
    assert not models.StepRun.objects.filter(run_id=old.id).exists()
    assert models.ItemRun.objects.count() == 3
    assert models.Event.objects.count() == 1


def test_runs_that_are_kept_for_ever_are() -> None:
    late_runs(1)
    models.Run.objects.update(state="completed", ended_ms=1)
    with override_settings(DUCTOR={**settings_of(), "RUNS_TTL": 0}):
        assert sweep.forget(now_ms()) == 0
    assert sweep.forget(now_ms()) == 1


def test_a_backlog_of_old_runs_goes_without_a_pause() -> None:
    late_runs(FORGOTTEN + 1)
    models.Run.objects.update(state="failed", ended_ms=1)
    duty = Sweep()
    assert duty.run() == 0
    assert duty.run() > 0
    assert not models.Run.objects.exists()


def test_a_timer_that_comes_early_is_set_again_and_a_late_one_counts() -> None:
    run = host.patient.start(1)
    with patch.object(waking, "hand_over", lambda orders: [None for _ in orders]):
        run.send_event("go", {"more": 4})
    row = models.StepRun.objects.get(run_id=run.id, step="sleep_1")
    early = (row.due_ms or 0) - 5
    with patch.object(runtime, "now_ms", lambda: early):
        runtime.look(run.id, Timer(reason="sleep:sleep_1", requeues=row.requeues), 0)
    assert models.StepRun.objects.get(pk=row.pk).requeues == row.requeues + 1
    runtime.look(run.id, Timer(reason="sleep:sleep_1", requeues=row.requeues), row.due_ms or 0)
    work()
    assert run.refresh().output == 5


def settings_of() -> dict[str, object]:
    from django.conf import settings as django_settings

    return dict(django_settings.DUCTOR)
