"""What people and programs do to a shard by hand: jobs ended, moved, erased, limits and policy set. Part of `Store`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from queueapp.store import calls
from queueapp.store.configuration import KeyLimits, PoolConf, ScopeLimits
from queueapp.store.records import Departed, Leaving, Obliterated, Rewritten, Stub
from queueapp.store.scripts import Argument
from queueapp.store.sending import Sender

EraseMode = Literal["", "bar", "barred", "look"]


class Operating(Sender):
    """The transitions of operators. Those that take ids may be called with any number; large calls are split."""

    def cancel(self, ids: Sequence[str]) -> list[str]:
        """Waiting jobs → ended (cancelled); active ones are told to stop.

        Words: cancelled, stopping, moving (to another pool, which is told) and moved (`transit.cancel` sees to both),
        already, gone.
        """
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

    def rewrite(
        self,
        job_id: str,
        payload: bytes,
        *,
        edits: int,
        token: str,
        keys: Sequence[str] = (),
        singleton: str = "",
        commit: bool = True,
    ) -> Rewritten:
        """A dead letter gets other arguments, unless it was edited since it had been edited `edits` times.

        `keys` are the digests of the concurrency keys that these give, `singleton` that of the singleton. `token` names
        the call: a repeat answers as before. Without `commit` nothing is changed.
        """
        word, number, at_ms = self._run(
            self._call(
                "rewrite",
                id=job_id,
                edits=edits,
                token=token,
                commit=int(commit),
                keys=" ".join(sorted(keys)),
                singleton=singleton,
                payload=payload,
            )
        )
        return Rewritten(word=word.decode(), edits=number, at_ms=at_ms)

    def discard(self, ids: Sequence[str]) -> list[str]:
        """Dead → ended (discarded). Words: discarded, already, gone."""
        return self._by_id("discard", ids)

    def cut(self, tenant: str, submission: int, ttl_ms: int, *, holder: str = "") -> int:
        """Waiting jobs of a tenant up to this number of submission are cancelled when met, for `ttl_ms`; 0 takes back
        what the same `holder` asked for. Answers how many such orders there are.
        """
        return int(self._run(self._call("cut", tenant=tenant, holder=holder, seq=submission, ttl_ms=ttl_ms))[0])

    def move_to_dlq(self, ids: Sequence[str], reason: str) -> list[str]:
        """Waiting jobs → dead, for `reason` (a short word). Words: moved, already, active, gone."""
        return self._by_id("move_to_dlq", ids, reason=reason)

    def depart(self, ids: Sequence[str], to: str) -> list[str]:
        """Waiting jobs leave for the pool with this code and shard. Words: moving, held, active, already, gone."""
        return self._by_id("depart", ids, to=to)

    def departed(self, most: int = 250, after: tuple[str, str] | None = None, ids: Sequence[str] = ()) -> Leaving:
        """Those that left and have not arrived: `ids`, or a page, the longest on their way first; about a megabyte."""
        score, last = after or ("", "")
        call = self._call("departed", calls.ids(ids), most=most, score=score, id=last)
        found, score, last = self._run(call)
        jobs = [
            Departed(
                id=job_id.decode(), to=to.decode(), hop=hop, cancelled=bool(cancelled), back=back, packed=packed or None
            )
            for job_id, to, hop, cancelled, back, packed in found
        ]
        return Leaving(jobs=jobs, cursor=(score.decode(), last.decode()) if last else None)

    def _said(self, name: str, jobs: Sequence[Sequence[Argument]]) -> list[str]:
        return self._run(self._call(name, {"jobs": jobs}, calls.words))

    def arrive(self, jobs: Sequence[tuple[str, bytes]]) -> list[str]:
        """Jobs `(id, packed)` that left another pool are here now. Words: arrived, exists (before), late, broken."""
        return self._said("arrive", jobs)

    def came(self, jobs: Sequence[tuple[str, int]]) -> list[str]:
        """Whether jobs `(id, hop)` have come here from another pool. Words: here, none. Changes nothing."""
        return self._said("came", jobs)

    def arrived(self, jobs: Sequence[tuple[str, int, bool]]) -> list[str]:
        """The other pool has them: moving → ended (moved); `(id, hop, whether it was told that it is cancelled)`.

        Words: moved, cancelled (meanwhile: the other pool must be told first), already, gone.
        """
        return self._said("arrived", [(job_id, hop, int(told)) for job_id, hop, told in jobs])

    def recall(self, jobs: Sequence[tuple[str, int]]) -> list[str]:
        """Moving → back in line: `(id, 0)` asks it back, `(id, hop)` where the other pool has not got it.

        Words: recalled (asked back: not yet), back, cancelled, lost (no readable row), already, gone.
        """
        return self._said("recall", jobs)

    def stubs(self, found: Sequence[tuple[str, int, str]] = (), *, every_ms: int, most: int = 250) -> list[Stub]:
        """What moved jobs left behind and was not looked at for so long, the longest first. `found` of those before:
        `(id, hop, "lives" or "gone")`.
        """
        (page,) = self._run(self._call("stubs", {"jobs": found}, most=most, every_ms=every_ms))
        return [Stub(id=job_id.decode(), to=to.decode(), hop=int(hop)) for job_id, to, hop in page]

    def erase(self, tenant: str, ids: Sequence[str], *, mode: EraseMode = "") -> list[str]:
        """Jobs of a tenant, in whatever state → gone, with all that was kept of them.

        Mode bar: and they cannot arrive here any more, whether they are here or not; barred: also those on their way to
        a pool where that was done since they were asked back; look: changes nothing. Words: erased, `moving CODE.SHARD`
        (on its way there: asked back), other (of another tenant), unknown (nobody can read whose it is), gone.
        """
        return self._by_id("erase", ids, tenant=tenant, mode=mode)

    def erase_traces(self, tenant: str, cursor: str = "0", limit: int = 1_000) -> tuple[str, int]:
        """A share of what the shard keeps of a tenant beside its jobs → gone. The next cursor, "0" = done; how many."""
        then, number = self._run(self._call("erase_traces", tenant=tenant, cursor=cursor, limit=limit))
        return then.decode(), number

    def obliterate(self, token: str, *, force: bool, cursor: str = "", limit: int = 1_000) -> Obliterated:
        """A share of emptying the shard. Meanwhile other calls are refused (`Obliterating`). While jobs run: nothing,
        unless `force`. `token` names the run, so that the repeat of its last share does not begin another; `cursor` is
        that of the share before, "" in the first one.
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
