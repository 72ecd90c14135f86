"""Steps with real bodies: what they are given and leave, how they fail, are undone, limited, and cancelled."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from flows import current_step, flow, models, step
from flows.steps import StepWrapper
from queueapp import current_tenant, task
from queueapp.errors import SoftTimeLimitExceeded
from queueapp.worker.context import JobContext
from tests.flows import host
from tests.working import work

pytestmark = pytest.mark.django_db(transaction=True)
BEGUN, GO = threading.Event(), threading.Event()


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    host.forget()
    for event in (BEGUN, GO):
        event.clear()
    yield
    GO.set()


@task(max_attempts=1)
def large() -> dict[str, object]:
    return {"rows": ["x" * 100] * 1_000, "small": 7}


@task(max_attempts=1)
def measure(rows: list[str], small: int) -> int:
    return len(rows) + small


@task(max_attempts=1)
def nothing() -> None:
    return None


@task(max_attempts=1)
def whose() -> str | None:
    return current_tenant()


@task(max_attempts=3)
def third_time() -> int:
    current = current_step()
    assert current is not None
    host.RAN[current.key] += 1
    if host.RAN[current.key] < 3:
        raise ValueError("not yet")
    return current.attempt


@task(max_attempts=1, takes_context=True)
def obedient(context: JobContext) -> str:
    BEGUN.set()
    while not context.is_cancelled and not GO.is_set():
        time.sleep(0.005)
    return "stopped"


@task(max_attempts=1, soft_timeout=0.05)
def mindful() -> str:
    try:
        while True:
            time.sleep(0.001)
    except SoftTimeLimitExceeded:
        return "in time"


@task(max_attempts=1)
def endless() -> None:
    raise AssertionError("its test runs a body of its own")


@flow
def heavy() -> object:
    made = step(large)
    return step(measure, made["rows"], made["small"])


@flow
def empty_handed() -> object:
    left = step(nothing)
    return step(host.same, left)


@flow
def tenants() -> object:
    return [step(whose), step(whose, name="other", tenant="other")]


@flow
def persistent() -> object:
    return step(third_time)


@flow
def cancellable() -> object:
    return step(host.same, step(obedient))


@flow
def limited() -> object:
    return step(mindful)


@flow
def over_time() -> object:
    return step(host.same, step(endless, timeout=0.1))


def test_what_is_too_large_for_a_tick_reaches_the_next_step_whole() -> None:
    run = heavy.start()
    work()
    assert run.refresh().output == 1_007


def test_none_is_a_value_like_any_other() -> None:
    run = empty_handed.start()
    work()
    assert (run.refresh().state, run.output) == ("completed", None)


def test_a_step_runs_for_the_tenant_of_the_run_or_its_own() -> None:
    run = tenants.using(tenant="acme").start()
    work()
    assert run.refresh().output == ["acme", "other"]


def test_retries_of_the_queue_are_within_one_try_of_the_step() -> None:
    run = persistent.start()
    deadline = time.monotonic() + 20
    while not run.refresh().row.has_ended and time.monotonic() < deadline:
        work()
    assert run.output == 1


def test_what_may_fail_leaves_nothing_and_the_run_goes_on() -> None:
    run = host.lenient.start(3)
    host.FAIL |= {f"{run.id}/double/1", "add"}
    work()
    assert run.refresh().output == {
        "results": [0, None, 4],
        "counts": {"total": 3, "completed": 2, "failed": 1},
        "alone": "none",
    }


def test_whatever_was_done_is_undone_the_last_first_half_a_map_too() -> None:
    run = host.undone.start(3)
    host.FAIL.add(f"{run.id}/double/2")
    work()
    assert run.refresh().state == "compensated"
    assert sorted(host.UNDONE[:2]) == [0, 2], "the two items that completed, with what they returned"
    assert host.UNDONE[2:] == [4], "then what came before them"


def test_an_undoing_that_fails_is_gone_on_with_there() -> None:
    run = host.undone.start(2)
    host.FAIL |= {"last", "undo:add"}
    work()
    assert (run.refresh().state, run.row.cause) == ("failed", "undo:add")
    undone = [*host.UNDONE]
    host.FAIL.clear()
    assert run.resume()
    work()
    assert run.refresh().state == "compensated"
    assert host.UNDONE[len(undone) :] == [3], "only what was left"


def test_a_body_that_heeds_its_soft_limit_has_completed() -> None:
    run = limited.start()
    work()
    assert run.refresh().output == "in time"


def test_a_body_that_overstays_its_limit_has_failed_and_what_it_does_later_does_not_count() -> None:
    """The worker tells of it while the body still runs."""
    run = over_time.start()
    wrapper, facts = StepWrapper(), [run.id, "endless", 1, -1]

    def body() -> int:
        wrapper.ended(facts, "failed", "TimeLimitExceeded: its time was over")
        return 5

    wrapper.around(facts, body)
    assert run.refresh().state == "failed"
    row = models.StepRun.objects.get(run_id=run.id, step="endless")
    assert (row.state, row.report_ending, row.output) == ("failed", "failed", None)
    assert "TimeLimitExceeded" in row.error


@pytest.mark.faults  # a worker in a thread of its own, beside the test that stops its job
def test_a_body_that_runs_is_told_of_a_cancel_and_its_end_advances_nothing() -> None:
    run = cancellable.start()
    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    assert BEGUN.wait(20)
    assert run.cancel("enough")
    worker.join(40)
    assert not worker.is_alive(), "the body was told"
    assert (run.refresh().state, run.row.note) == ("cancelled", "enough")
    assert not models.StepRun.objects.filter(run_id=run.id, step="same").exists()
