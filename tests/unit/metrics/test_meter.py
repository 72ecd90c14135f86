"""What a worker counts of its jobs: from the store's words, once, for the right tenant, at a small price."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import pytest
from prometheus_client import REGISTRY

from queueapp import metrics
from queueapp.store.records import Completed, Failed, Word
from queueapp.store.waits import Waits
from queueapp.worker.faults import Faults
from queueapp.worker.limits import Limits
from queueapp.worker.line import Line
from queueapp.worker.loop import Worker, WorkerOptions
from queueapp.worker.meter import WINDOW_S, Meter, PoolMeter
from queueapp.worker.parker import Parker
from queueapp.worker.slots import Chunk, Held, Outcome, ThreadSlots
from tests.unit.fake_store import FakeBlocking, FakeStore, leased
from tests.unit.metrics.reading import here

LABELS = metrics.TenantLabels(["acme"], 1)


@pytest.fixture
def pool(request: pytest.FixtureRequest) -> str:
    """A pool of the test's own: counters live as long as the process."""
    return f"meter-{abs(hash(request.node.name))}"


def done(meter: PoolMeter, word: Word, outcome: Completed | Failed, *, run_ms: float = 0, now_ms: int = 1) -> None:
    """A job ran, its outcome was said, the store answered `word`."""
    job = leased(outcome.id, attempts=outcome.attempts)
    meter.ended(job, run_ms)
    meter.answered([outcome], [word], now_ms)
    meter.flush(0.0)


def failed(retry_ms: int | None) -> Failed:
    return Failed(id="j", attempts=1, run_ms=1, error=b"{}", retry_ms=retry_ms)


class TestWhatIsCounted:
    def test_a_job_counts_as_completed_when_the_store_says_so(self, pool: str) -> None:
        meter = PoolMeter(pool, LABELS)
        meter.ended(leased("j"), 5)
        meter.flush(0.0)
        assert here("ductor_tasks_completed_total", pool=pool, tenant="acme") == 0
        meter.answered([Completed(id="j", attempts=1, run_ms=5)], ["done"], 1)
        meter.flush(1.0)
        assert here("ductor_tasks_completed_total", pool=pool, tenant="acme") == 1

    @pytest.mark.parametrize("word", ["stale", "gone"])
    def test_a_refused_outcome_is_a_duplicate_and_nothing_else(self, pool: str, word: Word) -> None:
        done(PoolMeter(pool, LABELS), word, Completed(id="j", attempts=1, run_ms=5), run_ms=5)
        assert here("ductor_duplicate_completions_total", pool=pool) == 1
        assert here("ductor_tasks_completed_total", pool=pool, tenant="acme") == 0
        assert here("ductor_task_exec_seconds_count", pool=pool) == 0

    @pytest.mark.parametrize(
        ("word", "retry_ms", "retries"),
        [("retry", 100, 1), ("dead", None, 0), ("dead", 100, 0), ("done", 100, 1), ("done", None, 0)],
    )
    def test_a_retry_is_what_the_store_scheduled(
        self, pool: str, word: Word, retry_ms: int | None, retries: int
    ) -> None:
        done(PoolMeter(pool, LABELS), word, failed(retry_ms), run_ms=5)
        assert here("ductor_task_retries_total", pool=pool) == retries
        assert here("ductor_task_exec_seconds_count", pool=pool) == 1
        assert here("ductor_task_latency_seconds_count", pool=pool) == 0

    def test_latency_is_from_submission_to_the_record_on_the_servers_clock(self, pool: str) -> None:
        done(PoolMeter(pool, LABELS), "done", Completed(id="j", attempts=1, run_ms=5), run_ms=7.5, now_ms=2_001)
        assert here("ductor_task_latency_seconds_sum", pool=pool) == 2.0
        assert here("ductor_task_exec_seconds_sum", pool=pool) == 0.0075

    def test_what_jobs_waited_for_is_summed_by_tenant(self, pool: str) -> None:
        meter = PoolMeter(pool, LABELS)
        meter.leased([leased(waits=Waits(schedule_ms=3_000, limits_ms=500)), leased(waits=Waits(limits_ms=250))])
        meter.leased([leased(tenant="bert", waits=Waits(line_ms=40))])
        meter.flush(0.0)
        meter.flush(1.0)
        waited = "ductor_waited_seconds_total"
        assert here(waited, pool=pool, tenant="acme", part="schedule") == 3.0
        assert here(waited, pool=pool, tenant="acme", part="limits") == 0.75
        assert here(waited, pool=pool, tenant="_other", part="line") == 0.04
        assert REGISTRY.get_sample_value(waited, {"pool": pool, "tenant": "acme", "part": "backoff"}) is None

    def test_wait_begins_when_the_job_is_ready_not_when_it_was_submitted(self, pool: str) -> None:
        meter = PoolMeter(pool, LABELS)
        meter.leased([leased(submitted_ms=1_000, ready_ms=61_000, leased_ms=61_500)])
        meter.flush(0.0)
        assert here("ductor_queue_wait_seconds_sum", pool=pool) == 0.5
        assert here("ductor_queue_wait_seconds_bucket", pool=pool, le="0.5") == 1
        assert here("ductor_queue_wait_seconds_bucket", pool=pool, le="0.25") == 0

    def test_the_longest_wait_is_that_of_the_last_two_windows(self, pool: str) -> None:
        meter = PoolMeter(pool, LABELS)
        seen = []
        for minute, wait_ms in enumerate([9_000, 2_000, 1_000, 3_000]):
            meter.leased([leased(ready_ms=0, leased_ms=wait_ms)])
            meter.flush(minute * WINDOW_S + 1)
            seen.append(here("ductor_max_observed_wait_seconds", pool=pool))
        assert seen == [9.0, 9.0, 2.0, 3.0]


class TestTime:
    def test_a_running_body_counts_while_it_runs_and_once(self, pool: str) -> None:
        slots = ThreadSlots(2, lambda held: None, lambda chunk: None)
        line = Line(pool, FakeStore(), "w", lease_ms=30_000, meter=PoolMeter(pool, LABELS))
        held = Held(leased(), line)
        chunk = Chunk(deque(), since=100.0, current=held)
        slots.outstanding[id(chunk)] = chunk
        meter = Meter([line.meter], [slots], now=100.0)
        before = here("ductor_worker_slot_seconds_total")
        for now, busy_s in [(101.0, 1.0), (130.0, 30.0)]:
            meter.flush(now)
            assert here("ductor_worker_busy_seconds_total", pool=pool) == pytest.approx(busy_s)
            assert here("ductor_tenant_service_seconds_total", pool=pool, tenant="acme") == pytest.approx(busy_s)
        chunk.current = None
        line.meter.ran(held, 30_500)
        meter.flush(131.0)
        assert here("ductor_worker_busy_seconds_total", pool=pool) == pytest.approx(30.5)
        assert here("ductor_worker_slot_seconds_total") - before == pytest.approx(62.0)

    def test_c038_thirty_quiet_days_cost_nothing(self, pool: str) -> None:
        """C038: a roll-up that fills in idle time overflows after a long quiet spell. Here nothing is filled in."""
        slots = ThreadSlots(4, lambda held: None, lambda chunk: None)
        meter = PoolMeter(pool, LABELS)
        whole = Meter([meter], [slots], now=0.0)
        whole.flush(1.0)
        series = len(list(REGISTRY.collect()))
        before = here("ductor_worker_slot_seconds_total")
        whole.flush(30 * 86_400.0)
        assert here("ductor_worker_slot_seconds_total") - before == pytest.approx(4 * (30 * 86_400 - 1))
        done(meter, "done", Completed(id="j", attempts=1, run_ms=5), run_ms=5, now_ms=30 * 86_400_000)
        whole.flush(30 * 86_400.0 + 1)
        assert here("ductor_tasks_completed_total", pool=pool, tenant="acme") == 1
        assert here("ductor_task_latency_seconds_bucket", pool=pool, le="+Inf") == 1
        assert len(list(REGISTRY.collect())) == series

    def test_a_slot_that_began_its_next_job_meanwhile_takes_nothing_away(self, pool: str) -> None:
        meter = PoolMeter(pool, LABELS)
        held = Held(leased(), Line(pool, FakeStore(), "w", lease_ms=30_000, meter=meter))
        for run_ms in (1_000, 3, 1_500):
            meter.ran(held, run_ms)
        meter.flush(0.0)
        assert here("ductor_worker_busy_seconds_total", pool=pool) == pytest.approx(1.5)


class TestTenants:
    def test_those_with_a_row_are_there_at_zero(self, pool: str) -> None:
        PoolMeter(pool, metrics.TenantLabels(["acme", "birch", "cedar"], 2))
        for tenant, there in [("acme", True), ("birch", True), ("cedar", False), (metrics.OTHER, True)]:
            for name in ("ductor_tasks_completed_total", "ductor_tenant_service_seconds_total"):
                value = REGISTRY.get_sample_value(name, {"pool": pool, "tenant": tenant})
                assert value == (0.0 if there else None), (name, tenant)

    def test_the_number_of_labels_and_of_what_is_kept_is_bounded(self, pool: str) -> None:
        labels = metrics.TenantLabels(["acme"], 3)
        meter = PoolMeter(pool, labels)
        for number in range(1_000):
            held = Held(leased(tenant=f"t{number}"), Line(pool, FakeStore(), "w", lease_ms=1, meter=meter))
            meter.ran(held, 1_000)
        meter.flush(0.0)
        assert labels.all == ["acme", "t0", "t1", metrics.OTHER]
        assert meter._tenants.keys() == set(labels.all)
        assert here("ductor_tenant_service_seconds_total", pool=pool, tenant="t1") == pytest.approx(1.0)
        assert here("ductor_tenant_service_seconds_total", pool=pool, tenant=metrics.OTHER) == pytest.approx(998.0)

    def test_none_at_all_with_a_limit_of_0(self) -> None:
        labels = metrics.TenantLabels(["acme"], 0)
        assert labels.label("acme") == metrics.OTHER


class TestDurations:
    @pytest.mark.parametrize("seconds", [0, 0.001, 0.0011, 3600, 1e9])
    def test_a_tally_fills_the_buckets_that_observe_would(self, pool: str, seconds: float) -> None:
        tallied, observed = (metrics.QUEUE_WAIT.labels(f"{pool}-{seconds}-{kind}") for kind in ("tally", "observe"))
        tally = metrics.Tally()
        tally.note(seconds)
        tally.drain(tallied)
        tally.drain(tallied)  # nothing is left
        observed.observe(seconds)

        def shape(child: metrics.Durations) -> list[tuple[str, str | None, float]]:
            return [(sample.name, sample.labels.get("le"), sample.value) for sample in child._child_samples()][:-1]

        assert shape(tallied) == shape(observed)


class TestTheLoop:
    """The same through a whole worker, on a store in memory."""

    def work(self, store: FakeStore, pool: str, **options: Any) -> Worker:
        blocking = FakeBlocking()
        line = Line(pool, store, "w", lease_ms=30_000, meter=PoolMeter(pool, LABELS))

        def run(held: Held, faults: Faults, limits: Limits) -> Outcome:
            return Completed(id=held.job.id, attempts=held.job.attempts, run_ms=1)

        return Worker(
            [line],
            WorkerOptions(**options),
            lambda post: Parker(lambda: blocking, [pool], post),
            run=run,
        )

    def test_every_job_is_counted_once_also_when_replies_are_lost(self, pool: str) -> None:
        store = FakeStore()
        store.add(500)
        store.lose_replies = 5
        self.work(store, pool, slots=4, batch=True).run()
        assert here("ductor_tasks_completed_total", pool=pool, tenant="acme") == 500
        assert here("ductor_task_exec_seconds_count", pool=pool) == 500
        assert here("ductor_task_latency_seconds_count", pool=pool) == 500
        assert here("ductor_queue_wait_seconds_count", pool=pool) == 500
        assert 0 < here("ductor_worker_busy_seconds_total", pool=pool) < 60

    def test_an_idle_loop_turns_and_its_slots_count(self, pool: str) -> None:
        store = FakeStore()
        worker = self.work(store, pool, slots=3)
        assert worker.unready
        before = here("ductor_worker_slot_seconds_total")
        thread = threading.Thread(target=worker.run)
        thread.start()
        store.wait(lambda: not worker.unready)
        first = worker.turned_at
        store.wait(lambda: here("ductor_worker_slot_seconds_total") > before)
        assert worker.turned_at > first
        store.away = True
        store.add(1)
        worker.stop()
        store.wait(lambda: worker.unready == "it is stopping")
        thread.join(10)

    def test_what_was_given_back_has_cost_slot_time_all_the_same(self, pool: str) -> None:
        line = Line(pool, FakeStore(), "w", lease_ms=30_000, meter=PoolMeter(pool, LABELS))
        worker = self.work(FakeStore(), pool)
        chunk = Chunk(deque(), since=0.0)
        chunk.done.append((Held(leased("given-back"), line), Completed(id="given-back", attempts=1, run_ms=1), 2_000.0))
        worker._take_done(chunk)
        line.meter.flush(0.0)
        assert here("ductor_worker_busy_seconds_total", pool=pool) == pytest.approx(2.0)
        assert line.meter._ended == {}
