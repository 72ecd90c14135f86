"""Metadata and progress: what a job is given, what its runs save, and what is left of both once it has ended."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from queueapp import backoff, task
from queueapp.compat import TaskResultStatus
from queueapp.errors import InvalidOption, ResultTooLarge, StoreUnavailable, UnserialisableArgument
from queueapp.inspection.jobs import find_job
from queueapp.store import shards
from queueapp.store.store import Store
from queueapp.worker.context import JobContext
from tests.working import work

seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


@task(takes_context=True, metadata={"origin": "shop", "tags": ["a"]})
def look(context: JobContext) -> None:
    seen.append(dict(context.metadata))


@task(takes_context=True)
def saves(context: JobContext, **more: Any) -> list[bool]:
    context.metadata["rows"] = 1
    return [context.save_metadata(), context.save_metadata(more), context.set_progress(2, 10, "half way")]


@task(takes_context=True)
async def saves_at_once(context: JobContext) -> list[bool]:
    return list(
        await asyncio.gather(
            context.asave_metadata({"rows": 1}), context.aset_progress(1, 2), context.aset_progress(2, 2, "done")
        )
    )


@task(takes_context=True, max_attempts=3, backoff=backoff.fixed(0))
def grows(context: JobContext) -> None:
    context.metadata.setdefault("attempts", []).append(context.attempt)
    context.metadata.pop("origin", None)
    context.save_metadata()
    if context.attempt < 3:
        raise ValueError


@task
def plain() -> None: ...


@task(takes_context=True)
def looks_again(context: JobContext) -> None:
    seen.append(context.metadata)


@task(takes_context=True)
def saves_too_much(context: JobContext) -> None:
    context.save_metadata({"text": "x" * 70_000})


@task(takes_context=True)
def saves_what_is_no_json(context: JobContext) -> None:
    context.save_metadata({"when": object()})


class TestGiven:
    def test_it_travels_with_the_job(self, store: Store) -> None:
        given = look.using(metadata={"origin": "fair"})
        result = given.enqueue()

        assert result.metadata == look.get_result(result.id).metadata == {"origin": "fair"}
        assert look.enqueue().metadata == {"origin": "shop", "tags": ["a"]}
        work()
        assert seen == [{"origin": "fair"}, {"origin": "shop", "tags": ["a"]}]

    def test_it_is_there_when_the_job_has_ended(self, store: Store) -> None:
        result = plain.using(metadata={"origin": "fair"}).enqueue()
        assert result.metadata == {"origin": "fair"}
        work()
        result.refresh()

        assert result.status == TaskResultStatus.SUCCESSFUL
        assert (result.metadata, result.progress) == ({"origin": "fair"}, None)

    def test_a_job_that_never_ran_has_none_once_it_is_cancelled(self, store: Store) -> None:
        result = plain.using(metadata={"origin": "fair"}).enqueue()
        store.cancel([result.id[-22:]])
        result.refresh()

        assert result.metadata == {}

    def test_only_jobs_that_were_given_some_cost_a_call(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        saved: list[str] = []
        whole = Store.save

        def save(self: Store, job_id: str, *args: Any) -> Any:
            saved.append(job_id)
            return whole(self, job_id, *args)

        monkeypatch.setattr(Store, "save", save)
        without, given = plain.enqueue(), plain.using(metadata={"a": 1}).enqueue()
        work()

        assert saved == [given.id[-22:]] != [without.id[-22:]]

    def test_an_empty_one_takes_away_what_the_task_declares(self, store: Store) -> None:
        result = look.using(metadata={}).enqueue()
        work()
        result.refresh()

        assert (seen, result.metadata) == ([{}], {})

    def test_what_a_caller_changes_is_not_what_the_task_declares(self, store: Store) -> None:
        result = look.enqueue()
        result.metadata["tags"].append("b")

        assert look.get_result(result.id).metadata == {"origin": "shop", "tags": ["a"]}
        assert look.metadata == {"origin": "shop", "tags": ["a"]}

    def test_it_makes_no_conflict_of_an_idempotency_key(self, store: Store) -> None:
        keyed = plain.using(idempotency_key="once")
        first = keyed.using(metadata={"a": 1}).enqueue()

        assert keyed.using(metadata={"a": 2}).enqueue().id == first.id

    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            ([("a", 1)], "must be a mapping"),
            ("a", "must be a mapping"),
            ({1: "a"}, r"metadata: the key 1 is int, not text"),
            ({"a": [object()]}, r"metadata\['a'\]\[0\]: object"),
            ({"a": "x" * 20_000}, "20008 bytes as JSON: it must be at most 16384"),
        ],
    )
    def test_what_is_no_json_mapping_is_refused(self, wrong: Any, says: str) -> None:
        with pytest.raises(InvalidOption, match=f"metadata.*{says}"):
            plain.using(metadata=wrong)


class TestSaved:
    def test_the_newest_value_wins(self, store: Store) -> None:
        result = saves.using(metadata={"rows": 0, "origin": "fair"}).enqueue(rows=2, more=True)
        work()
        result.refresh()

        assert result.return_value == [True, True, True]
        assert result.metadata == {"rows": 2, "origin": "fair", "more": True}
        assert result.progress == {"done": 2, "total": 10, "message": "half way"}

    def test_a_later_attempt_goes_on_from_what_an_earlier_one_saved(self, store: Store) -> None:
        result = grows.using(metadata={"origin": "fair"}).enqueue()
        while work():
            pass
        result.refresh()

        assert result.metadata == {"attempts": [1, 2, 3]}, "also what was taken away stays away"

    def test_what_was_saved_stands_whole_while_the_job_waits_again(self, store: Store) -> None:
        result = grows.using(metadata={"origin": "fair"}, backoff=3600).enqueue()
        work()
        result.refresh()
        job = find_job(result.id)

        assert (result.state, result.metadata) == ("scheduled", {"attempts": [1]})
        assert job is not None
        assert job.saved() == {"metadata": {"attempts": [1]}}

    def test_the_first_attempt_asks_the_store_nothing(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        looks_again.enqueue()
        monkeypatch.setattr(shards, "reads", lambda pool: pytest.fail("asked"))
        work()

        assert seen == [{}]

    def test_where_earlier_values_cannot_be_read_the_body_is_told(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(pool: str) -> None:
            raise StoreUnavailable("away")

        result = grows.enqueue()
        with monkeypatch.context() as patch:
            patch.setattr(shards, "reads", away)
            work()
        result.refresh()

        assert [error.exception_class for error in result.errors] == [ValueError, StoreUnavailable, StoreUnavailable]
        assert result.metadata == {"attempts": [1]}, "nothing was overwritten"

    @pytest.mark.parametrize(
        ("body", "error"), [(saves_too_much, ResultTooLarge), (saves_what_is_no_json, UnserialisableArgument)]
    )
    def test_what_cannot_be_saved_is_the_bodys_error(self, body: Any, error: type[Exception], store: Store) -> None:
        result = body.enqueue()
        work()
        result.refresh()

        [found] = result.errors
        assert found.exception_class is error
        assert "metadata" in found.traceback

    def test_an_async_body_saves_without_holding_up_itself(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        all_at_once = threading.Barrier(3, timeout=10)
        whole = Store.save

        def save(self: Store, *args: Any) -> Any:
            all_at_once.wait()  # passes only when the three are under way together
            return whole(self, *args)

        monkeypatch.setattr(Store, "save", save)
        result = saves_at_once.enqueue()
        work()
        result.refresh()

        assert result.return_value == [True, True, True]
        assert result.metadata == {"rows": 1}

    def test_people_see_both_once(self, store: Store) -> None:
        result = saves.using(metadata={"token": "t"}).enqueue()
        work()
        job = find_job(result.id)

        assert job is not None
        assert job.saved() == {
            "progress": {"done": 2, "total": 10, "message": "half way"},
            "metadata": {"token": "********", "rows": 1},
        }
