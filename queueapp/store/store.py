"""The store of one shard: one typed method per transition, each of them one atomic Lua script on server time.

There is no other way to change a job's state. What operators do is in `operating`, what leaders do in `dispatching`,
parents and children in `family`,
recounts in `checking`, questions in `looking`. Every method may be called again with the same arguments when its reply
was lost: a script recognises the repeat. The store itself sends a call once more after a broken connection, then raises
`StoreUnavailable`. Safe to use from several threads (the client pools connections).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import redis

from queueapp.store import calls
from queueapp.store.calls import Reply
from queueapp.store.checking import Checking
from queueapp.store.connection import translate_errors
from queueapp.store.family import Family
from queueapp.store.keys import ShardKeys
from queueapp.store.leader_records import Reranked, Term
from queueapp.store.looking import Looking
from queueapp.store.operating import Operating
from queueapp.store.records import (
    Completed,
    Cycle,
    Enqueued,
    Failed,
    Finish,
    LeasedJob,
    Leases,
    Matched,
    Moved,
    NewJob,
    Recovered,
    Returned,
    Word,
)
from queueapp.store.rows import leased_job


class Store(Checking, Operating, Looking, Family):
    """Transitions of one shard. `client` must not decode replies; `clock_ms` replaces the server's clock in tests."""

    def __init__(self, client: redis.Redis, keys: ShardKeys, *, clock_ms: Callable[[], int] | None = None) -> None:
        super().__init__(client, keys, clock_ms=clock_ms)
        self._task_names: dict[bytes, str] = {}

    # -- a job's life ----------------------------------------------------------------------------------------------

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """New jobs → pending or scheduled; one answer per job, in order. Large calls are split and pipelined."""
        batches = [calls.enqueue(batch, self._clock_ms()) for batch in calls.batches(jobs)]
        return [answer for answers in self._run_all(batches) for answer in answers]

    def check_and_lease(self, worker: str, seq: int, *, want: int, begin: int, lease_ms: int) -> Leases:
        """Leases up to `want` (at most 100) jobs for `worker`. The same `seq` answers the same jobs again.

        The first `begin` of them count as begun: their loss is a crash. Raises `StaleCall` for an older `seq`.
        """
        reply = self._run(
            self._call("check_and_lease", worker=worker, seq=seq, want=want, begin=begin, lease_ms=lease_ms)
        )
        return Leases(**self._leases(reply))

    def cycle(
        self,
        worker: str,
        seq: int,
        *,
        want: int,
        begin: int,
        lease_ms: int,
        finished: Sequence[Finish] = (),
        extend: Sequence[tuple[str, int]] = (),
        begun: Sequence[tuple[str, int]] = (),
    ) -> Cycle:
        """A worker's one round trip: what ended, heartbeats, what began, new leases, and a share of what is due."""
        reply = self._run(
            self._call(
                "cycle",
                {"finished": [calls.finish_row(finish) for finish in finished], "extend": extend, "begun": begun},
                worker=worker,
                seq=seq,
                want=want,
                begin=begin,
                lease_ms=lease_ms,
            )
        )
        return Cycle(
            finished=[word.decode() for word in reply[4]],
            lost=[job_id.decode() for job_id in reply[5]],
            cancelled=list(dict.fromkeys([*reply[6].decode().split(), *(job_id.decode() for job_id in reply[7])])),
            version=reply[8],
            **self._leases(reply),
        )

    def match(self, job: NewJob, worker: str, lease_ms: int) -> Matched:
        """A new plain job whose body `worker` has begun → active, in its hands; where a limit forbids it → pending or
        ingress, without a lease. Of what `enqueue` offers only the order in line counts here (priority, deadline)."""
        return self._run(calls.match(job, worker, lease_ms, self._clock_ms()))

    def complete(self, finished: Sequence[Completed]) -> list[Word]:
        """Active → ended (completed; cancelled when it was told to stop), for the current attempt only."""
        return self._words("complete", finished=[calls.finish_row(finish) for finish in finished])

    def fail(self, finished: Sequence[Failed]) -> list[Word]:
        """Active → scheduled (another attempt), dead, or, told to stop before, ended; for the current attempt only."""
        return self._words("fail", finished=[calls.finish_row(finish) for finish in finished])

    def extend_lease(self, leases: Sequence[tuple[str, int]], lease_ms: int) -> list[str]:
        """Moves the deadlines of `(id, attempts)`; answers the ids whose leases were lost.

        `cycle`, which workers call for this, also says which of the jobs were told to stop.
        """
        return self._run(self._call("extend_lease", {"leases": leases}, calls.words, lease_ms=lease_ms))

    def partition_requeue(self, returned: Sequence[Returned]) -> list[Word]:
        """Active → pending at the old place, or scheduled with a delay: given back unrun, nothing is counted.

        One that was told to stop ends (cancelled).
        """
        return self._words("partition_requeue", returned=[calls.returned_row(job) for job in returned])

    def partition_recover(self, limit: int = 100, witness: str = "", after: str = "") -> Recovered:
        """Expired leases → pending, dead when the crash budget is spent, or ended when the job was told to stop.

        With `witness`, a channel on which the caller has been subscribed for a while, also those of workers that show
        no sign of life (`presence`); `after` is what the last call answered.
        """
        reply = self._run(self._call("partition_recover", limit=limit, witness=witness, after=after))
        pending, dead, more, cancelled, workers, last = reply
        return Recovered(
            pending=pending, dead=dead, cancelled=cancelled, more=bool(more), workers=workers, after=last.decode()
        )

    def promote_due(self, limit: int = 100) -> Moved:
        """Scheduled jobs that are due → pending; waiting jobs past their expiry → ended (expired)."""
        promoted, expired, more, next_due_ms = self._run(self._call("promote_due", limit=limit))
        return Moved(pending=promoted, expired=expired, more=bool(more), next_due_ms=next_due_ms)

    def backlog_promote(self, seed: int, most: int = 64) -> Moved:
        """Parked jobs that are due → pending or ingress, drawn between the tiers; at most 64. A seed draws the same."""
        promoted, more, next_due_ms = self._run(self._call("backlog_promote", seed=seed, most=most))
        return Moved(pending=promoted, more=bool(more), next_due_ms=next_due_ms)

    def rerank(self, most: int = 250) -> Reranked:
        """Pending jobs that stand in the order of an earlier policy → the order in force; a share of at most `most`."""
        moved, gone, total, more = self._run(self._call("rerank", most=most))
        return Reranked(moved=moved, gone=min(gone, total), total=total, more=bool(more))

    # -- workers and leaders ---------------------------------------------------------------------------------------

    def register(self, worker: str, info: Mapping[str, str], ttl_ms: int, channel: str = "") -> bool:
        """Makes a worker known for `ttl_ms`; repeated, it renews the entry. Answers whether the store sees its sign of
        life, `channel`."""
        groups = {"info": list(info.items())}
        return bool(self._run(self._call("register", groups, worker=worker, ttl_ms=ttl_ms, channel=channel))[0])

    def forget(self, worker: str) -> int:
        """A worker takes its leave; answers how many leases it still holds (they end at their deadline)."""
        return int(self._run(self._call("forget", worker=worker))[0])

    def save(self, job_id: str, attempts: int, fields: Mapping[str, bytes]) -> Word:
        """Progress, metadata or checkpoint of a running job, under its lease."""
        reply = self._run(self._call("save", {"fields": list(fields.items())}, id=job_id, attempts=attempts))
        word: Word = reply[0].decode()
        return word

    def lead_acquire(self, owner: str, nonce: str, ttl_ms: int, *, channel: str = "", watch: bool = False) -> Term:
        """Takes the lease of leadership when it is free or expired, or, with `watch`, its holder is seen to be gone.

        `channel`: the caller's own sign of life. Raises `LeaseHeld`, and `LeaderAbsent` when it should ask once more.
        """
        return self._lead("acquire", owner, nonce, ttl_ms, channel=channel, watch=int(watch))

    def lead_renew(self, nonce: str, ttl_ms: int, fault: str = "", *, channel: str = "") -> Term:
        """Renews it. `fault`: why this leader cannot dispatch, for people. Raises `Fenced` when another term began."""
        return self._lead("renew", "", nonce, ttl_ms, fault=fault, channel=channel)

    def lead_release(self, nonce: str) -> bool:
        """Gives it up and wakes a standby; False when it was not ours any more."""
        call = self._call("lead", verb="release", owner="", nonce=nonce, ttl_ms=0, fault="", channel="", watch=0)
        return bool(self._run(call)[0])

    # -- results, retention ----------------------------------------------------------------------------------------

    def await_result(self, job_id: str, waiter: str) -> bool:
        """True: nothing to wait for (ended, dead or gone). False: the id will come to the list `done:<waiter>`."""
        return bool(self._run(self._call("await", id=job_id, waiter=waiter))[0])

    def trim(
        self,
        *,
        result_ttl_ms: int,
        result_max: int,
        dead_ttl_ms: int,
        dead_max: int,
        replay_window_ms: int = 60_000,
        worker_ttl_ms: int = 600_000,
        tenants: int = 100_000,
        limit: int = 500,
    ) -> bool:
        """Removes ended and dead jobs beyond their retention; True when another call would find more.

        `dead_max` bounds the dead letters of each tenant; a call looks at the tenants of a random sample. More than
        `tenants` are remembered only while they have jobs waiting or dead.
        """
        reply = self._run(
            self._call(
                "trim",
                result_ttl_ms=result_ttl_ms,
                result_max=result_max,
                dead_ttl_ms=dead_ttl_ms,
                dead_max=dead_max,
                replay_window_ms=replay_window_ms,
                worker_ttl_ms=worker_ttl_ms,
                tenants=tenants,
                limit=limit,
            )
        )
        return bool(reply[1])

    # -- how calls are made ----------------------------------------------------------------------------------------

    def _lead(
        self, verb: str, owner: str, nonce: str, ttl_ms: int, *, fault: str = "", channel: str = "", watch: int = 0
    ) -> Term:
        call = self._call(
            "lead", verb=verb, owner=owner, nonce=nonce, ttl_ms=ttl_ms, fault=fault, channel=channel, watch=watch
        )
        epoch, ttl, seen = self._run(call)
        return Term(epoch=epoch, nonce=nonce, ttl_ms=ttl, seen=bool(seen))

    def _leases(self, reply: Reply) -> dict[str, Any]:
        rows, runnable, next_due_ms, now_ms = reply[:4]
        unknown = {row[6] for row in rows} - self._task_names.keys()
        if unknown:
            self._learn_task_names(list(unknown))
        jobs: list[LeasedJob] = [leased_job(row, self._task_names) for row in rows]
        return {
            "jobs": jobs,
            "runnable": bool(runnable),
            "next_due_ms": next_due_ms,
            "now_ms": now_ms,
            "more": runnable == 2,
        }

    def _learn_task_names(self, numbers: list[bytes]) -> None:
        with translate_errors():
            found: Any = self.client.hmget(self.keys["names"], numbers)
        for task_number, name in zip(numbers, found, strict=True):
            self._task_names[task_number] = name.decode() if name else f"unknown task {task_number.decode()}"
