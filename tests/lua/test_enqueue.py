"""enqueue: what it writes, what it answers, and that a repeat pays nothing."""

from __future__ import annotations

from tests.lua.harness import START_MS, Shard


def test_a_plain_job_writes_exactly_this(shard: Shard) -> None:
    shard.add(shard.job())
    assert shard.snapshot() == {
        "job:0000000000000000000001": b'p10000000000011800000000000|1|acme||||||||||f00d\n{"a":[1]}',
        "q:acme|main": [(b"0000000000000000000001", 1.0)],
        "lanes:acme": [(b"main", 0.0)],
        "walk": [(b"acme", 0.0)],
        "wake": [(b"w", 0.0)],
        "counts": {b"w": b"1"},
        "tenants": [(b"acme", 1.0)],
        "stats": {b"enqueued": b"1"},
        "marks": {b"seq": b"1", b"clock": str(START_MS).encode()},
        "conf": {b"schema": b"1"},
        "tasks": {b"shop.tasks.bill": b"1"},
        "names": {b"1": b"shop.tasks.bill"},
    }


def test_every_option_finds_its_place_in_the_row(shard: Shard) -> None:
    job = shard.job(
        lane="slow",
        priority=-5,
        tier="continue",
        cost=2.5,
        max_attempts=4,
        max_crashes=1,
        expires_after_ms=500,
        deadline_ms=START_MS + 700,
    )
    shard.add(shard.job())
    shard.add(job)
    row = shard.snapshot()[f"job:{job.id}"]
    header = b"p10000000000021800000000000|1|acme|slow|-5|c|2.5|4|1|1800000000500|1800000000700||f00d"
    assert row == header + b'\n{"a":[1]}'
    assert shard.snapshot()["expiring"] == [(job.id.encode(), 1800000000500.0)]
    assert "qc:acme|slow" in shard.snapshot()


def test_the_same_id_again_is_enqueued_again_and_changes_nothing(shard: Shard) -> None:
    job = shard.job(idempotency="digest")
    shard.add(job)
    before = shard.snapshot()
    assert shard.store.enqueue([job])[0].outcome == "enqueued"
    assert shard.snapshot() == before


def test_the_same_id_after_its_end_makes_no_second_job(shard: Shard) -> None:
    job = shard.job()
    shard.add(job)
    (leased,) = shard.lease()
    from tests.lua.harness import completed

    shard.store.complete([completed(leased)])
    before = shard.snapshot()
    assert shard.store.enqueue([job])[0].outcome == "enqueued"
    assert shard.snapshot() == before


def test_the_same_id_twice_in_one_call_is_one_job(shard: Shard) -> None:
    job = shard.job()
    assert [answer.outcome for answer in shard.store.enqueue([job, job])] == ["enqueued", "enqueued"]
    assert shard.snapshot()["counts"][b"w"] == b"1"


def test_an_id_with_other_arguments_is_a_conflict(shard: Shard) -> None:
    job = shard.job()
    shard.add(job)
    assert shard.store.enqueue([shard.job(id=job.id, fingerprint="beef")])[0].outcome == "conflict"


def test_an_idempotency_key_stands_for_the_first_job(shard: Shard) -> None:
    first, same, other = (shard.job(idempotency="digest") for _ in range(3))
    shard.add(first)
    answer = shard.store.enqueue([same])[0]
    assert (answer.outcome, answer.id) == ("exists", first.id)
    clash = shard.store.enqueue([shard.job(idempotency="digest", fingerprint="beef")])[0]
    assert (clash.outcome, clash.id) == ("conflict", first.id)
    elsewhere = shard.store.enqueue([shard.job("globex", idempotency="digest")])[0]
    assert elsewhere.outcome == "enqueued", "the key is scoped to the tenant"
    assert 0 < shard.client.pttl(shard.keys["idem:acme|digest"]) <= other.idempotency_ttl_ms


def test_an_idempotency_key_holds_within_one_call(shard: Shard) -> None:
    answers = shard.store.enqueue([shard.job(idempotency="k"), shard.job(idempotency="k")])
    assert [(answer.outcome, answer.id[-1]) for answer in answers] == [("enqueued", "1"), ("exists", "1")]


def test_a_job_of_later_is_scheduled_by_the_server_clock(shard: Shard) -> None:
    by_delay, by_moment, past = shard.add(
        shard.job(delay_ms=3_000), shard.job(due_ms=START_MS + 5_000), shard.job(due_ms=START_MS - 5_000)
    )
    assert shard.snapshot()["scheduled"] == [(by_delay.encode(), START_MS + 3e3), (by_moment.encode(), START_MS + 5e3)]
    assert [job.id for job in shard.lease(3)] == [past]
    assert shard.snapshot()["wake"] == [(b"t", 0.0)]


def test_c107_a_delay_is_counted_from_the_servers_clock(shard: Shard) -> None:
    """C107: 'in 3 seconds' became minutes because web and worker clocks differ."""
    shard.add(shard.job(delay_ms=3_000))
    shard.now_ms += 2_999
    assert shard.store.promote_due().pending == 0
    shard.now_ms += 1
    assert shard.store.promote_due().pending == 1


def test_large_calls_are_split_and_answered_in_order(shard: Shard) -> None:
    jobs = [shard.job(f"tenant{number % 7}") for number in range(1_003)]
    assert [answer.id for answer in shard.store.enqueue(jobs)] == [job.id for job in jobs]
    assert shard.snapshot()["counts"][b"w"] == b"1003"


def test_binary_payloads_come_back_to_the_byte(shard: Shard) -> None:
    payload = bytes(range(256)) + b"\n|" * 10
    shard.add(shard.job(payload=payload))
    assert shard.lease()[0].payload == payload
