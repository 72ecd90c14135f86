"""What people and programs do to a shard by hand: jobs ended, moved, erased, limits and policy set. Part of `Store`."""

from __future__ import annotations

from collections.abc import Sequence

from queueapp.store import calls
from queueapp.store.configuration import KeyLimits, PoolConf, ScopeLimits
from queueapp.store.records import Departed, Obliterated
from queueapp.store.sending import Sender


class Operating(Sender):
    """The transitions of operators. Those that take ids may be called with any number; large calls are split."""

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
