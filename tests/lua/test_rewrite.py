"""rewrite: a dead letter gets other arguments, once, and stays what it was otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.states import State
from queueapp.store.records import KeyUse, Rewritten, SingletonUse
from queueapp.store.views import JobRecord
from tests.lua.harness import Shard, failed
from tests.lua.keyed import keyed, use

NEW = b'{"a":[2],"k":{"note":"a|b\\n"}}'


def dead_job(shard: Shard, job: Any = None, **options: Any) -> str:
    (job_id,) = shard.add(job or shard.job(**options))
    (leased,) = shard.lease()
    assert shard.store.fail([failed(leased)]) == ["dead"]
    return job_id


def record(shard: Shard, job_id: str) -> JobRecord:
    found = shard.reads.job(job_id)
    assert found is not None
    return found


def test_a_dead_letter_has_other_arguments_and_is_else_what_it_was(shard: Shard) -> None:
    job_id = dead_job(shard, priority=7, deadline_ms=9)
    before, snapshot = record(shard, job_id), shard.snapshot()
    shard.now_ms += 5_000
    assert shard.store.rewrite(job_id, NEW, edits=0, token="one") == Rewritten(
        word="rewritten", edits=1, at_ms=shard.now_ms
    )
    after = record(shard, job_id)
    assert after.payload == NEW
    assert (after.edits, after.edited_ms) == (1, shard.now_ms)
    for name in ("state", "reason", "group", "tenant", "task", "priority", "deadline_ms", "attempts", "error_count"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.errors == before.errors
    changed = {key for key, value in shard.snapshot().items() if snapshot.get(key) != value}
    assert changed == {f"job:{job_id}", f"run:{job_id}", "marks"}
    assert shard.store.verify() == []


def test_it_runs_with_them_once_it_is_retried(shard: Shard) -> None:
    job_id = dead_job(shard, expires_after_ms=60_000, deadline_ms=9)
    shard.store.rewrite(job_id, NEW, edits=0, token="one")
    assert shard.store.retry_from_dlq([job_id]) == ["retried"]
    (again,) = shard.lease()
    assert (again.id, again.payload, again.attempts, again.errors) == (job_id, NEW, 2, 0)
    shard.store.fail([failed(again)])
    assert record(shard, job_id).edits == 1, "that it was edited stays known"
    assert shard.store.verify() == []


def test_of_two_who_edit_at_once_the_second_is_refused_and_told(shard: Shard) -> None:
    job_id = dead_job(shard)
    shard.store.rewrite(job_id, NEW, edits=0, token="one")
    edited = shard.now_ms
    shard.now_ms += 9_000
    before = shard.snapshot()
    answer = shard.store.rewrite(job_id, b"{}", edits=0, token="two")
    assert answer == Rewritten(word="changed", edits=1, at_ms=edited)
    after = shard.snapshot()
    assert {key for key in after if after[key] != before.get(key)} <= {"marks"}
    assert shard.store.rewrite(job_id, b"{}", edits=1, token="two").word == "rewritten"
    assert record(shard, job_id).payload == b"{}"


def test_a_repeat_is_recognised_whatever_became_of_the_job(shard: Shard) -> None:
    job_id = dead_job(shard)
    first = shard.store.rewrite(job_id, NEW, edits=0, token="one")
    for act in (shard.store.retry_from_dlq, shard.store.cancel):
        assert shard.store.rewrite(job_id, NEW, edits=0, token="one") == first
        act([job_id])
    assert shard.store.rewrite(job_id, NEW, edits=0, token="one") == first
    assert record(shard, job_id).payload is None


def test_an_old_call_that_comes_late_does_not_undo_a_newer_one(shard: Shard) -> None:
    job_id = dead_job(shard)
    shard.store.rewrite(job_id, NEW, edits=0, token="one")
    shard.store.rewrite(job_id, b"{}", edits=1, token="two")
    assert shard.store.rewrite(job_id, NEW, edits=0, token="one").word == "changed"
    assert record(shard, job_id).payload == b"{}"


@pytest.mark.parametrize("state", ["pending", "scheduled", "active", "ended"])
def test_only_a_dead_letter_can_be_edited(shard: Shard, state: str) -> None:
    (job_id,) = shard.add(shard.job(delay_ms=9_000 if state == "scheduled" else 0))
    if state == "active":
        shard.lease()
    if state == "ended":
        shard.store.cancel([job_id])
    before = shard.snapshot()
    for commit in (True, False):
        assert shard.store.rewrite(job_id, NEW, edits=0, token="one", commit=commit).word == "already"
    assert shard.snapshot() == before
    assert shard.store.rewrite("nobody", NEW, edits=0, token="one").word == "gone"


def test_without_commit_it_only_judges(shard: Shard) -> None:
    job_id = dead_job(shard)
    before = shard.snapshot()
    assert shard.store.rewrite(job_id, NEW, edits=0, token="one", commit=False).word == "fits"
    assert shard.store.rewrite(job_id, NEW, edits=3, token="one", commit=False).word == "changed"
    assert shard.snapshot() == before


def test_a_job_keeps_its_concurrency_keys(shard: Shard) -> None:
    job_id = dead_job(shard, keyed(shard, "a", "b", limit=2))
    before = shard.snapshot()
    for other in ([], ["a"], ["a", "c"], ["a", "b", "c"]):
        keys = [use(name).digest for name in other]
        assert shard.store.rewrite(job_id, NEW, edits=0, token="one", keys=keys).word == "keys", other
    assert shard.snapshot() == before
    keys = [use(name).digest for name in ("b", "a")]
    assert shard.store.rewrite(job_id, NEW, edits=0, token="one", keys=keys).word == "rewritten"
    assert shard.store.verify() == []
    shard.store.retry_from_dlq([job_id])
    assert [job.payload for job in shard.lease()] == [NEW]
    assert shard.store.verify() == []


def test_one_without_keys_has_none_to_keep(shard: Shard) -> None:
    """Its task has got some since, or it was sent without."""
    job_id = dead_job(shard)
    assert shard.store.rewrite(job_id, NEW, edits=0, token="one", keys=["k"], singleton="s").word == "rewritten"


@pytest.mark.parametrize("mode", ["skip", "next"])
def test_a_job_keeps_its_singleton(shard: Shard, mode: Any) -> None:
    keys = () if mode == "skip" else (KeyUse(digest="night", text="s", limit=1, pattern="singleton"),)
    job = shard.job(singleton=SingletonUse(digest="night", mode=mode), keys=keys)
    job_id = dead_job(shard, job)
    mine = [key.digest for key in keys]
    answer = shard.store.rewrite(job_id, NEW, edits=0, token="one", keys=mine, singleton="day")
    assert answer.word == "singleton"
    assert record(shard, job_id).payload == job.payload
    assert shard.store.rewrite(job_id, NEW, edits=0, token="one", keys=mine, singleton="night").word == "rewritten"
    assert shard.store.retry_from_dlq([job_id]) == ["retried"]
    assert shard.store.verify() == []


def test_who_sends_the_first_arguments_again_still_finds_the_job(shard: Shard) -> None:
    """An outbox may hold the row still; and an idempotency key stands for the request that was accepted."""
    job = shard.job(idempotency="digest")
    job_id = dead_job(shard, job)
    shard.store.rewrite(job_id, NEW, edits=0, token="one")
    [answer] = shard.store.enqueue([job])
    assert (answer.outcome, answer.id) == ("enqueued", job_id)
    [answer] = shard.store.enqueue([shard.job(idempotency="digest")])
    assert (answer.outcome, answer.id) == ("exists", job_id)
    [answer] = shard.store.enqueue([shard.job(idempotency="digest", payload=NEW, fingerprint="beef")])
    assert answer.outcome == "conflict"


def test_what_a_run_with_the_old_arguments_saved_does_not_meet_the_new_ones(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    (leased,) = shard.lease()
    shard.store.save(job_id, 1, {"checkpoint": b'{"at":3}', "progress": b'{"done":3}'})
    shard.store.fail([failed(leased)])
    assert shard.store.rewrite(job_id, NEW, edits=0, token="one", commit=False).word == "fits"
    assert shard.reads.checkpoint(job_id) is not None
    shard.store.rewrite(job_id, NEW, edits=0, token="one")
    assert shard.reads.checkpoint(job_id) is None
    assert record(shard, job_id).data == {"progress": b'{"done":3}'}, "what it told stays"


@pytest.mark.dirty_store
@pytest.mark.parametrize("kind", ["job", "run"])
def test_a_key_of_a_wrong_type_is_nobody_s_dead_letter(shard: Shard, kind: str) -> None:
    job_id = dead_job(shard)
    shard.client.delete(shard.keys[f"{kind}:{job_id}"])
    shard.client.rpush(shard.keys[f"{kind}:{job_id}"], "x")
    assert shard.store.rewrite(job_id, NEW, edits=0, token="one").word == "already"
    assert shard.client.type(shard.keys[f"{kind}:{job_id}"]) == b"list"


def test_arguments_of_a_dead_letter_in_scheduled_dispatch(shard: Shard) -> None:
    job_id = dead_job(shard)
    term = shard.schedule()
    shard.store.rewrite(job_id, NEW, edits=0, token="one")
    shard.store.retry_from_dlq([job_id])
    assert record(shard, job_id).state is State.INGRESS
    shard.dispatch(term)
    assert [job.payload for job in shard.lease()] == [NEW]
    assert shard.store.verify() == []
