"""Checkpoints: where a run says that the next one may go on, and what becomes of it."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from queueapp import backoff, task
from queueapp.errors import ResultTooLarge, StoreUnavailable, UnserialisableArgument
from queueapp.inspection.jobs import find_job
from queueapp.store import shards
from queueapp.store.store import Store
from queueapp.testing import drain, recorded
from queueapp.worker.context import JobContext
from tests.working import work

seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


@task(takes_context=True, max_attempts=3, backoff=backoff.fixed(0))
def goes_on(context: JobContext) -> str:
    """Each run takes one step and saves it; the third is through."""
    seen.append(context.checkpoint)
    page = (context.checkpoint or {"page": 0})["page"] + 1
    assert context.save_checkpoint({"page": page})
    assert context.checkpoint == {"page": page}
    if page < 3:
        raise OSError("half way")
    return "through"


@task(takes_context=True, max_attempts=2, backoff=backoff.fixed(0))
async def goes_on_asynchronously(context: JobContext) -> bool:
    seen.append(context.checkpoint)
    saved = await asyncio.gather(context.asave_checkpoint([1, (2, 3)]), context.aset_progress(1, 2))
    if context.attempt == 1:
        raise OSError(str(saved))
    return all(saved)


@task(takes_context=True, typed=True, max_attempts=2, backoff=backoff.fixed(0))
def keeps_types(context: JobContext) -> None:
    seen.append(context.checkpoint)
    context.save_checkpoint({"day": datetime.date(2027, 1, 2), "pair": (1, 2)})
    if context.attempt == 1:
        raise OSError


@task(takes_context=True, sensitive=True, max_attempts=2, backoff=backoff.fixed(0))
def keeps_to_itself(context: JobContext) -> None:
    seen.append(context.checkpoint)
    context.save_checkpoint({"password": "secret"})
    if context.attempt == 1:
        raise OSError


@task(takes_context=True)
def odd(context: JobContext) -> None:
    for value, fault in ((object(), UnserialisableArgument), ("x" * 70_000, ResultTooLarge)):
        with pytest.raises(fault, match="checkpoint"):
            context.save_checkpoint(value)
    assert context.save_checkpoint(None)
    seen.append(context.checkpoint)


@task(takes_context=True)
def dies(context: JobContext) -> str:
    seen.append(context.checkpoint)
    if context.checkpoint is None:
        context.save_checkpoint("here")
        raise OSError
    return "through"


def test_each_run_goes_on_where_the_one_before_stopped(store: Store) -> None:
    result = goes_on.enqueue()
    assert work() == 3
    result.refresh()
    assert result.return_value == "through"
    assert seen == [None, {"page": 1}, {"page": 2}]
    assert shards.reads("default").checkpoint(result.id[-22:]) is None, "it has gone with the end"


def test_in_an_asynchronous_body(store: Store) -> None:
    result = goes_on_asynchronously.enqueue()
    work()
    result.refresh()
    assert result.return_value is True
    assert seen == [None, [1, [2, 3]]], "in its JSON form"


def test_a_typed_task_keeps_types(store: Store) -> None:
    keeps_types.enqueue()
    work()
    assert seen == [None, {"day": datetime.date(2027, 1, 2), "pair": (1, 2)}]


def test_what_cannot_be_written_is_refused_and_none_is_a_value(store: Store) -> None:
    odd.enqueue()
    work()
    assert seen == [None]


def test_a_redriven_dead_letter_goes_on_there(store: Store) -> None:
    result = dies.enqueue()
    work()
    result.refresh()
    assert result.state == "dead"
    assert store.retry_from_dlq([result.id[-22:]]) == ["retried"]
    work()
    result.refresh()
    assert (result.return_value, seen) == ("through", [None, "here"])


def test_nobody_is_shown_it(store: Store) -> None:
    result = keeps_to_itself.enqueue()
    work()
    assert seen == [None, {"password": "secret"}]
    found = find_job(result.id)
    assert found is not None
    assert found.saved() == {}


def test_the_first_run_asks_nobody_and_a_later_one_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    kept = type(shards.reads("default")).checkpoint

    def note(reads: Any, job_id: str) -> bytes | None:
        asked.append(job_id)
        return kept(reads, job_id)

    monkeypatch.setattr("queueapp.store.reads.Reads.checkpoint", note)
    goes_on_asynchronously.enqueue()
    work()
    assert len(asked) == 1


def test_a_run_that_cannot_ask_is_told_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going on as if there were none would do the work twice."""

    def away(reads: Any, job_id: str) -> bytes | None:
        raise StoreUnavailable("away")

    monkeypatch.setattr("queueapp.store.reads.Reads.checkpoint", away)
    result = goes_on.using(max_attempts=2).enqueue()
    work()
    result.refresh()
    assert result.errors[-1].exception_class is StoreUnavailable


def test_in_memory() -> None:
    with recorded():
        result = goes_on.enqueue()
        drain(raise_on_failure=False)
        result.refresh()
        assert result.return_value == "through"
    assert seen == [None, {"page": 1}, {"page": 2}]
