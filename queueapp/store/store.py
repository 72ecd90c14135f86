"""The store of one shard: one typed method per transition, each of them one atomic Lua script on server time.

There is no other way to change a job's state. Every method may be called again with the same arguments when its reply
was lost: a script recognises the repeat. The store itself sends a call once more after a broken connection, then raises
`StoreUnavailable`. Safe to use from several threads (the client pools connections).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import redis

from queueapp.store import calls
from queueapp.store.calls import Reply
from queueapp.store.configuration import KeyLimits, PoolConf, ScopeLimits
from queueapp.store.connection import translate_errors
from queueapp.store.dispatching import Dispatching
from queueapp.store.keys import ShardKeys
from queueapp.store.leader_records import Reranked, Term
from queueapp.store.records import (
    Completed,
    Cycle,
    Departed,
    Enqueued,
    Failed,
    Finish,
    LeasedJob,
    Leases,
    Moved,
    NewJob,
    Obliterated,
    Returned,
    Word,
)
from queueapp.store.rows import leased_job
from queueapp.store.views import Cursor, Page, Standing, StandingJob
from queueapp.store.wait_facts import WaitFacts, wait_facts


class Store(Dispatching):
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
            **self._leases(reply),
        )

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

    def partition_recover(self, limit: int = 100) -> Moved:
        """Expired leases → pending, dead when the crash budget is spent, or ended when the job was told to stop."""
        pending, dead, more, cancelled = self._run(self._call("partition_recover", limit=limit))
        return Moved(pending=pending, dead=dead, cancelled=cancelled, more=bool(more))

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

    # -- by hand ---------------------------------------------------------------------------------------------------

    def cancel(self, ids: Sequence[str]) -> list[str]:
        """Waiting jobs → ended (cancelled); active ones are told to stop. Words: cancelled, stopping, already, gone."""
        return self._by_id("cancel", ids)

    def retry_from_dlq(self, ids: Sequence[str], *, first_ms: float = 0, gap_ms: float = 0) -> list[str]:
        """Dead → pending with fresh budgets. Words: retried, skipped (another has its singleton), already, gone.

        With a gap they become scheduled: the first due in `first_ms`, each further one `gap_ms` after the one before.
        """
        answers: list[str] = []
        for first in range(0, len(ids), calls.MAX_IDS_PER_CALL):
            page = ids[first : first + calls.MAX_IDS_PER_CALL]
            answers += self._by_id("retry_from_dlq", page, first_ms=first_ms + first * gap_ms, gap_ms=gap_ms)
        return answers

    def discard(self, ids: Sequence[str]) -> list[str]:
        """Dead → ended (discarded). Words: discarded, already, gone."""
        return self._by_id("discard", ids)

    def cut(self, tenant: str, submission: int, ttl_ms: int) -> int:
        """Waiting jobs of a tenant up to this number of submission are cancelled when met, for `ttl_ms`; 0 takes it
        back. Answers how many tenants are cut.
        """
        return int(self._run(self._call("cut", tenant=tenant, seq=submission, ttl_ms=ttl_ms))[0])

    def move_to_dlq(self, ids: Sequence[str], reason: str) -> list[str]:
        """Waiting jobs → dead, for `reason` (a short word). Words: moved, already, active, gone."""
        return self._by_id("move_to_dlq", ids, reason=reason)

    def depart(self, ids: Sequence[str], to: str) -> list[str]:
        """Waiting jobs leave for the pool with this code and shard. Words: moving, held, active, already, gone."""
        return self._by_id("depart", ids, to=to)

    def departed(self, most: int = 250, skip: int = 0) -> list[Departed]:
        """Those that left and have not arrived, the longest on their way first; at most about a megabyte of them."""
        (found,) = self._run(self._call("departed", most=most, skip=skip))
        return [
            Departed(id=job_id.decode(), to=to.decode(), hop=hop, packed=packed or None)
            for job_id, to, hop, packed in found
        ]

    def arrive(self, jobs: Sequence[tuple[str, bytes]]) -> list[str]:
        """Jobs `(id, packed)` that left another pool are here now. Words: arrived, exists (before), late, broken."""
        (words,) = self._run(self._call("arrive", {"jobs": jobs}))
        return [word.decode() for word in words]

    def arrived(self, jobs: Sequence[tuple[str, int]]) -> list[str]:
        """The other pool has them: moving → ended (moved); `(id, hop)`. Words: moved, already, gone."""
        (words,) = self._run(self._call("arrived", {"jobs": jobs}))
        return [word.decode() for word in words]

    def erase(self, tenant: str, ids: Sequence[str]) -> list[str]:
        """Jobs of a tenant, in whatever state → gone, with all that was kept of them. Words: erased, other, gone."""
        return self._by_id("erase", ids, tenant=tenant)

    def erase_traces(self, tenant: str, cursor: str = "0", limit: int = 1_000) -> tuple[str, int]:
        """A share of what the shard keeps of a tenant beside its jobs → gone. The next cursor, "0" = done; how many."""
        then, number = self._run(self._call("erase_traces", tenant=tenant, cursor=cursor, limit=limit))
        return then.decode(), number

    def obliterate(self, token: str, *, force: bool, cursor: str = "0", limit: int = 1_000) -> Obliterated:
        """A share of emptying the shard. Meanwhile other calls are refused (`Obliterating`). While jobs run: nothing,
        unless `force`. `token` names the run, so that the repeat of its last share does not begin another.
        """
        word, then, jobs, keys = self._run(
            self._call("obliterate", token=token, force=int(force), cursor=cursor, limit=limit)
        )
        return Obliterated(word=word.decode(), cursor=then.decode(), jobs=jobs, keys=keys)

    def configure(
        self,
        version: int,
        *,
        pool: PoolConf | None = None,
        scopes: Sequence[ScopeLimits] = (),
        keys: Sequence[KeyLimits] = (),
    ) -> None:
        """Weights, ceilings, pauses, limits of concurrency keys and the pool's policy; acts at once on what is queued.

        What waits when the policy changes, or a parameter by which it orders, moves over in shares (`rerank`). Raises
        `OldVersion` when a newer one is in force, `PolicyBusy` for another such change before that is done.
        """
        cursor = "0"
        while True:
            cursor = self._run(calls.configure(version, pool, scopes, cursor, self._clock_ms(), keys))
            if cursor == "0":
                return

    # -- workers and leaders ---------------------------------------------------------------------------------------

    def register(self, worker: str, info: Mapping[str, str], ttl_ms: int) -> None:
        """Makes a worker known for `ttl_ms`; repeated, it renews the entry."""
        self._run(self._call("register", {"info": list(info.items())}, worker=worker, ttl_ms=ttl_ms))

    def forget(self, worker: str) -> int:
        """A worker takes its leave; answers how many leases it still holds (they end at their deadline)."""
        return int(self._run(self._call("forget", worker=worker))[0])

    def save(self, job_id: str, attempts: int, fields: Mapping[str, bytes]) -> Word:
        """Progress, metadata or checkpoint of a running job, under its lease."""
        reply = self._run(self._call("save", {"fields": list(fields.items())}, id=job_id, attempts=attempts))
        word: Word = reply[0].decode()
        return word

    def lead_acquire(self, owner: str, nonce: str, ttl_ms: int) -> Term:
        """Takes the lease of leadership when it is free or expired. Raises `LeaseHeld`."""
        return self._lead("acquire", owner, nonce, ttl_ms)

    def lead_renew(self, nonce: str, ttl_ms: int, fault: str = "") -> Term:
        """Renews it. `fault`: why this leader cannot dispatch, for people. Raises `Fenced` when another term began."""
        return self._lead("renew", "", nonce, ttl_ms, fault)

    def lead_release(self, nonce: str) -> bool:
        """Gives it up and wakes a standby; False when it was not ours any more."""
        reply = self._run(self._call("lead", verb="release", owner="", nonce=nonce, ttl_ms=0, fault=""))
        return bool(reply[0])

    # -- results, retention, inspection ----------------------------------------------------------------------------

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

    def peek(self, count: int = 10) -> list[tuple[str, str, str]]:
        """`(tenant, lane, id)` of what would be leased next, in order. Changes nothing."""
        reply = self._run(self._call("peek", count=count))
        return [(tenant.decode(), lane.decode(), job_id.decode()) for tenant, lane, job_id in reply]

    def browse(
        self,
        index: str,
        *,
        count: int,
        newest: bool = False,
        before_ms: int = 0,
        after: Cursor | None = None,
        skip: int = 0,
        looks: int = 1_000,
        tenant: str = "",
        task: str = "",
        reason: str = "",
        group: str = "",
        lane: str = "",
        submitted_by_ms: int = 0,
    ) -> Page:
        """A page of an index of jobs, `dead` for example, by (score, id). Changes nothing.

        Conditions are looked up in the rows, at most `looks` of them: a page may hold fewer than `count` and not be the
        last. `after` stays right whatever came or went meanwhile; `skip` counts from the beginning. `before_ms` leaves
        out scores from there on, `submitted_by_ms` jobs that were submitted later.
        """
        score, job_id = after or ("", "")
        size, found, position, last_score, last_id = self._run(
            self._call(
                "browse",
                index=index,
                newest=int(newest),
                before=before_ms,
                score=score,
                id=job_id,
                skip=skip,
                count=count,
                looks=looks,
                tenant=tenant,
                task=task,
                reason=reason,
                group=group,
                lane=lane,
                latest=submitted_by_ms,
            )
        )
        return Page(
            ids=[one.decode() for one in found[::2]],
            size=size,
            position=position,
            cursor=(last_score.decode(), last_id.decode()) if last_id else None,
        )

    def oldest(
        self, *, first: int = 0, cursor: str = "0", lanes: Sequence[tuple[str, str]] = (), looks: int = 2_000
    ) -> Standing:
        """The pending jobs that have stood in line longest, as far as about `looks` commands go. Changes nothing.

        `lanes` are looked at before all others; `first` and `cursor` of the answer lead on.
        """
        jobs, then, cursor_then, now_ms = self._run(
            self._call("oldest", {"lanes": lanes}, first=first, cursor=cursor, looks=looks)
        )
        return Standing(
            jobs=[
                StandingJob(tenant=tenant.decode(), lane=lane.decode(), id=job_id.decode(), since_ms=int(since))
                for tenant, lane, job_id, since in jobs
            ],
            first=then,
            cursor=cursor_then.decode(),
            now_ms=now_ms,
        )

    def explain(self, job_id: str, *, live_ms: int, most: int, walked: int, looks: int) -> WaitFacts:
        """What one job waits for, at one moment; lua/explain.lua says what bounds what. Changes nothing."""
        call = self._call("explain", id=job_id, live_ms=live_ms, most=most, walked=walked, looks=looks)
        return wait_facts(job_id, self._run(call))

    def verify(self) -> list[str]:
        """Recounts a quiet shard; the violations found. For tests: it reads every key."""
        return self._run(self._call("verify", None, calls.words))

    # -- how calls are made ----------------------------------------------------------------------------------------

    def _lead(self, verb: str, owner: str, nonce: str, ttl_ms: int, fault: str = "") -> Term:
        epoch, ttl = self._run(self._call("lead", verb=verb, owner=owner, nonce=nonce, ttl_ms=ttl_ms, fault=fault))
        return Term(epoch=epoch, nonce=nonce, ttl_ms=ttl)

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
