"""The store for asynchronous callers: enqueue, cancel, wait, read. The calls of `Store`, sent by an async client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import redis.asyncio
from redis.exceptions import ConnectionError as ServerGone
from redis.exceptions import ReadOnlyError, ResponseError
from redis.exceptions import TimeoutError as ServerSilent

from queueapp.store import calls
from queueapp.store.calls import Call
from queueapp.store.connection import translate_errors
from queueapp.store.family import plantings
from queueapp.store.family_records import Away, Node, Planted
from queueapp.store.job_reads import check_replies, queue_job_reads, read_jobs
from queueapp.store.keys import ShardKeys
from queueapp.store.records import Enqueued, Matched, NewJob
from queueapp.store.sending import server_clock, ways
from queueapp.store.views import JobRecord

T = TypeVar("T")


class AsyncStore:
    """What an asynchronous caller needs of one shard. `client` must not decode replies."""

    def __init__(
        self, client: redis.asyncio.Redis, keys: ShardKeys, *, clock_ms: Callable[[], int] | None = None
    ) -> None:
        self.client = client
        self.keys = keys
        self._clock_ms = clock_ms or server_clock

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """As `Store.enqueue`."""
        answers: list[Enqueued] = []
        for batch in calls.batches(jobs):
            accepted = await self._run(calls.enqueue(batch, self._clock_ms()))
            answers += accepted
        return answers

    async def match(self, job: NewJob, worker: str, lease_ms: int) -> Matched:
        """As `Store.match`."""
        return await self._run(calls.match(job, worker, lease_ms, self._clock_ms()))

    async def enqueue_flow(self, nodes: Sequence[Node], away: Sequence[Away] = ()) -> Planted:
        """As `Store.enqueue_flow`, of a new tree."""
        first: Planted | None = None
        for call in plantings(nodes, away, "new", self._clock_ms()):
            answer = await self._run(call)
            first = first or answer
            if answer.outcome != "enqueued":
                return answer
        assert first is not None
        return first

    async def cancel(self, ids: Sequence[str]) -> list[str]:
        """As `Store.cancel`, for one call's worth of ids."""
        return await self._run(calls.call("cancel", self._clock_ms(), calls.words, calls.ids(ids)))

    async def await_result(self, job_id: str, waiter: str) -> bool:
        """As `Store.await_result`."""
        call = calls.call("await", self._clock_ms(), lambda reply: bool(reply[0]), id=job_id, waiter=waiter)
        return await self._run(call)

    async def read_job(self, job_id: str) -> JobRecord | None:
        """As `Reads.job`."""
        return (await self._read([job_id], lenient=False))[0]

    async def read_jobs(self, ids: Sequence[str]) -> list[JobRecord | None]:
        """As `Reads.jobs`."""
        return await self._read(ids, lenient=True)

    async def _read(self, ids: Sequence[str], *, lenient: bool) -> list[JobRecord | None]:
        with translate_errors():
            pipeline = self.client.pipeline(transaction=True)
            queue_job_reads(pipeline, self.keys, ids)
            *replies, names = await pipeline.execute(raise_on_error=False)
            check_replies([names])
        return read_jobs(ids, replies, names, lenient=lenient)

    async def _run(self, call: Call[T]) -> T:
        with translate_errors():
            try:
                reply = await self._send(call)
            except (ServerGone, ServerSilent):
                await self.client.connection_pool.disconnect(inuse_connections=False)  # as `connection.drop_idle`
                reply = await self._send(call)  # replay-safe: the script recognises a repeat
            except ReadOnlyError:
                await self.client.connection_pool.disconnect(inuse_connections=False)
                raise
        return call.result(reply)

    async def _send(self, call: Call[Any]) -> calls.Reply:
        steps = ways(self.client, self.keys.prefix, call)
        try:
            method, arguments = next(steps)
            while True:
                try:
                    reply = await method(*arguments)
                except ResponseError as error:
                    method, arguments = steps.throw(error)
                else:
                    method, arguments = steps.send(reply)
        except StopIteration as end:
            answer: calls.Reply = end.value
            return answer
