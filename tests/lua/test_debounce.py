"""Debounce: calls with one key make one run, with the newest arguments, once no more come or the wait is over."""

from __future__ import annotations

from typing import Any

from queueapp.codec import digest
from queueapp.store.configuration import Rate, ScopeLimits
from queueapp.store.records import DebounceUse, KeyUse, NewJob, SingletonUse
from tests.lua.harness import START_MS, Shard, completed, failed

WINDOW = DebounceUse(digest="report", period_ms=2_000, most_ms=5_000)


def call(shard: Shard, number: int, use: DebounceUse = WINDOW, **options: Any) -> NewJob:
    return shard.job(payload=b'{"a":[%d]}' % number, fingerprint=f"f{number}", debounce=use, **options)


def send(shard: Shard, job: NewJob) -> tuple[str, str]:
    [answer] = shard.store.enqueue([job])
    return answer.outcome, answer.id


def runs(shard: Shard, until_ms: int) -> list[tuple[int, bytes]]:
    """(ms since the start, payload) of what runs, looked at every 100 ms."""
    found = []
    while shard.now_ms < START_MS + until_ms:
        shard.now_ms += 100
        shard.store.promote_due()
        for job in shard.lease(5):
            found.append((shard.now_ms - START_MS, job.payload))
            shard.store.complete([completed(job)])
    return found


def test_the_newest_arguments_run_once_when_no_call_comes_any_more(shard: Shard) -> None:
    first = call(shard, 1)
    assert send(shard, first) == ("enqueued", first.id)
    shard.now_ms += 1_500
    assert send(shard, call(shard, 2)) == ("debounced", first.id)
    assert runs(shard, 10_000) == [(3_500, b'{"a":[2]}')]


def test_c092_with_calls_all_the_time_it_runs_at_the_longest_wait(shard: Shard) -> None:
    """C092: With constant events a trailing debounce never fires; or the cap (max wait) is overshot."""
    found = []
    for second in range(20):
        send(shard, call(shard, second))
        found += runs(shard, (second + 1) * 1_000)
    found += runs(shard, 30_000)
    # Each window begins with the first call that no run has served, and runs 5 s after it with the last arguments.
    assert found == [(5_000, b'{"a":[4]}'), (10_000, b'{"a":[9]}'), (15_000, b'{"a":[14]}'), (20_000, b'{"a":[19]}')]


def test_c092_a_longest_wait_equal_to_the_period_is_never_put_off(shard: Shard) -> None:
    use = DebounceUse(digest="d", period_ms=2_000, most_ms=2_000)
    send(shard, call(shard, 1, use))
    shard.now_ms += 1_900  # 100 ms before it runs
    assert send(shard, call(shard, 2, use))[0] == "debounced"
    assert runs(shard, 6_000) == [(2_000, b'{"a":[2]}')]


def test_without_a_longest_wait_calls_put_it_off_for_ever(shard: Shard) -> None:
    use = DebounceUse(digest="d", period_ms=2_000)
    for second in range(60):
        shard.now_ms = START_MS + second * 1_000
        send(shard, call(shard, second, use))
    assert runs(shard, 70_000) == [(61_000, b'{"a":[59]}')]


def test_in_line_it_keeps_its_place_and_takes_the_newest_arguments(shard: Shard) -> None:
    first = call(shard, 1)
    send(shard, first)
    shard.now_ms += 2_000
    shard.store.promote_due()
    shard.add(shard.job())
    assert send(shard, call(shard, 2)) == ("debounced", first.id)
    assert [job.payload for job in shard.lease(2)] == [b'{"a":[2]}', b'{"a":[1]}']


def test_once_leased_the_next_call_opens_another_window(shard: Shard) -> None:
    send(shard, call(shard, 1))
    shard.now_ms += 2_000
    shard.store.promote_due()
    [job] = shard.lease()
    other = call(shard, 2)
    assert send(shard, other) == ("enqueued", other.id)
    # Also while it waits for another attempt: what has begun keeps its arguments.
    shard.store.fail([failed(job, retry_ms=100)])
    assert send(shard, call(shard, 3)) == ("debounced", other.id)
    shard.store.cancel([job.id])
    assert send(shard, call(shard, 4)) == ("debounced", other.id)


def test_a_repeated_call_neither_puts_off_nor_counts(shard: Shard) -> None:
    first, second = call(shard, 1), call(shard, 2)
    send(shard, first)
    shard.now_ms += 1_000
    send(shard, second)
    before = shard.snapshot()
    shard.now_ms += 500
    assert send(shard, second) == ("debounced", first.id)
    # The first one is known by its row, although that has other arguments now.
    assert send(shard, first) == ("enqueued", first.id)
    assert shard.snapshot() == before


def test_a_repeat_after_the_run_is_still_known(shard: Shard) -> None:
    first, second = call(shard, 1), call(shard, 2)
    send(shard, first)
    send(shard, second)
    runs(shard, 3_000)
    assert send(shard, second) == ("debounced", first.id)
    left: Any = shard.client.pttl(shard.keys["deb:acme|report"])
    assert 0 < left <= 60_000


def test_a_repeat_of_any_of_the_last_calls_changes_nothing(shard: Shard) -> None:
    """The reply of an earlier call was lost: it must neither bring its arguments back nor put the run off."""
    calls = [call(shard, number) for number in range(8)]
    for each in calls:
        send(shard, each)
    before = shard.snapshot()
    shard.now_ms += 500
    for each in calls[1:]:
        assert send(shard, each) == ("debounced", calls[0].id)
    assert shard.snapshot() == before


def test_a_repeat_makes_no_second_job_once_the_first_runs(shard: Shard) -> None:
    first, second, third = (call(shard, number) for number in range(3))
    for each in (first, second, third):
        send(shard, each)
    shard.now_ms += 2_000
    shard.store.promote_due()
    assert [job.payload for job in shard.lease(5)] == [third.payload]
    assert {send(shard, each) for each in (second, third)} == {("debounced", first.id)}
    other = call(shard, 4)
    assert send(shard, other) == ("enqueued", other.id)
    # Nor does it touch the job of the next window.
    assert send(shard, second) == ("debounced", other.id)
    assert runs(shard, 9_000) == [(4_000, other.payload)]


def test_what_a_window_remembers_is_bounded(shard: Shard) -> None:
    for number in range(20):
        send(shard, call(shard, number))
    shard.store.enqueue([call(shard, number) for number in range(20)])
    window = shard.snapshot()["deb:acme|report"]
    assert sorted(window) == [b"first", b"job", b"n", *(b"r%d" % number for number in range(8))]
    assert {window[b"r%d" % number].decode() for number in range(8)} == {f"{number:022}" for number in range(33, 41)}


def test_an_idempotency_key_stands_for_the_job_that_took_the_call(shard: Shard) -> None:
    """Sent anew with the same key it changes nothing, although later calls came."""
    first, second = call(shard, 1), call(shard, 2, idempotency="k")
    send(shard, first)
    assert send(shard, second) == ("debounced", first.id)
    send(shard, call(shard, 3))
    before = shard.snapshot()
    shard.now_ms += 500
    assert send(shard, second) == ("debounced", first.id)
    assert send(shard, call(shard, 2, idempotency="k")) == ("exists", first.id)
    assert send(shard, call(shard, 9, idempotency="k")) == ("conflict", first.id)
    assert shard.snapshot() == before
    assert runs(shard, 5_000) == [(2_000, b'{"a":[3]}')]


def test_an_idempotency_key_of_a_batch_stands_for_the_job_of_its_window(shard: Shard) -> None:
    jobs = [call(shard, 1), call(shard, 2, idempotency="k"), call(shard, 2, idempotency="k")]
    answers = shard.store.enqueue(jobs)
    assert [(answer.outcome, answer.id) for answer in answers] == [
        ("enqueued", jobs[0].id),
        ("debounced", jobs[0].id),
        ("exists", jobs[0].id),
    ]


def test_calls_of_one_batch_are_one_run(shard: Shard) -> None:
    jobs = [call(shard, number) for number in range(5)]
    answers = shard.store.enqueue(jobs)
    assert [answer.outcome for answer in answers] == ["enqueued"] + ["debounced"] * 4
    assert {answer.id for answer in answers} == {jobs[0].id}
    assert runs(shard, 5_000) == [(2_000, b'{"a":[4]}')]


def test_several_calls_of_a_batch_change_a_job_that_waits(shard: Shard) -> None:
    send(shard, call(shard, 1))
    shard.now_ms += 1_000
    assert {a.outcome for a in shard.store.enqueue([call(shard, n) for n in (2, 3)])} == {"debounced"}
    assert runs(shard, 5_000) == [(3_000, b'{"a":[3]}')]


def test_tenants_do_not_share_a_window(shard: Shard) -> None:
    send(shard, call(shard, 1))
    assert send(shard, call(shard, 2, tenant="other"))[0] == "enqueued"


def test_a_refused_first_call_opens_no_window(shard: Shard) -> None:
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", rate=Rate(rate=1, period_ms=60_000))])
    shard.add(shard.job())
    before = shard.snapshot()
    assert send(shard, call(shard, 1))[0] == "throttled"
    assert shard.snapshot() == before


def test_a_debounced_call_pays_no_rate_and_a_parked_job_is_never_pulled_forward(shard: Shard) -> None:
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", rate=Rate(rate=1, period_ms=60_000))])
    shard.add(shard.job())
    first = call(shard, 1, parks=True)
    assert send(shard, first)[0] == "parked"
    shard.now_ms += 1_000
    assert send(shard, call(shard, 2, parks=True)) == ("debounced", first.id)
    assert send(shard, call(shard, 3)) == ("debounced", first.id)
    assert shard.client.zscore(shard.keys["backlog"], first.id) == START_MS + 60_000
    shard.now_ms = START_MS + 60_000
    shard.store.backlog_promote(1)
    assert [job.payload for job in shard.lease(5)] == [b'{"a":[1]}', b'{"a":[3]}']


def test_keys_that_follow_from_the_arguments_change_with_them(shard: Shard) -> None:
    def use(name: str) -> tuple[KeyUse, ...]:
        return (KeyUse(digest=digest(name), text=name, limit=1, pattern=digest("{x}")),)

    send(shard, call(shard, 1, keys=use("one")))
    assert send(shard, call(shard, 2, keys=use("two")))[0] == "debounced"
    assert shard.snapshot()["keynames"] == {digest("two").encode(): b"two"}
    shard.now_ms += 2_000
    shard.store.promote_due()
    # In line it stands with its key: another one is another job.
    assert send(shard, call(shard, 3, keys=use("three")))[0] == "enqueued"
    assert [job.payload for job in shard.lease(5)] == [b'{"a":[2]}']


def test_the_job_keeps_its_expiry_and_its_waiting_counts_from_its_time(shard: Shard) -> None:
    first = call(shard, 1, expires_after_ms=60_000)
    send(shard, first)
    shard.now_ms += 1_000
    send(shard, call(shard, 2))
    shard.now_ms += 2_000
    shard.store.promote_due()
    [job] = shard.lease()
    assert (job.ready_ms - START_MS, job.submitted_ms - START_MS) == (3_000, 0)


def test_a_cancelled_job_takes_its_window_along(shard: Shard) -> None:
    first = call(shard, 1)
    send(shard, first)
    shard.store.cancel([first.id])
    other = call(shard, 2)
    assert send(shard, other) == ("enqueued", other.id)
    assert "once" in shard.snapshot()
    left: Any = shard.client.pttl(shard.keys["deb:acme|report"])
    assert left == -1  # the window of the job that waits now does not end with that of the one before
    shard.store.cancel([other.id])
    assert "once" not in shard.snapshot()


def test_a_job_that_this_very_call_replaces_takes_no_arguments_any_more(shard: Shard) -> None:
    single = SingletonUse(digest="single", mode="replace")
    first = call(shard, 1, singleton=single)
    send(shard, first)
    second, third = shard.job(singleton=single), call(shard, 3)
    answers = shard.store.enqueue([second, third])
    assert [(answer.outcome, answer.id) for answer in answers] == [("enqueued", second.id), ("enqueued", third.id)]
    assert runs(shard, 5_000) == [(100, second.payload), (2_000, third.payload)]
