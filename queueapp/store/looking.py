"""What a shard is asked by scripts that change nothing: what is next, who waits longest and why, pages of an index.

Part of `Store`. What plain commands can read is in `reads`.
"""

from __future__ import annotations

from collections.abc import Sequence

from queueapp.store.calls import Reply
from queueapp.store.configured import unlimited
from queueapp.store.scripts import Argument
from queueapp.store.sending import Sender
from queueapp.store.views import Cursor, Page, Standing, StandingJob
from queueapp.store.wait_facts import WaitFacts, wait_facts

LOOKS = 1_000
"""Rows that one page of `browse` looks at, unless another number is asked for."""


class Looking(Sender):
    """Questions to one shard, each answered at one moment."""

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
        looks: int = LOOKS,
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
        page: Page = self._run(
            self._call(
                "browse",
                read=_page,
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
        return page

    def browse_each(self, queues: Sequence[str], *, count: int, task: str = "", submitted_by_ms: int = 0) -> list[Page]:
        """The first page of each of these queues, in one round trip. Changes nothing."""
        none: dict[str, Argument] = dict.fromkeys(("score", "id", "tenant", "reason", "group", "lane"), "")
        rest = none | {"newest": 0, "before": 0, "skip": 0, "count": count, "looks": LOOKS}
        rest |= {"task": task, "latest": submitted_by_ms}
        return self._run_all([self._call("browse", None, _page, **{**rest, "index": queue}) for queue in queues])

    def oldest(
        self,
        *,
        first: int = 0,
        lane: int = 0,
        cursor: str = "0",
        lanes: Sequence[tuple[str, str]] = (),
        looks: int = 2_000,
    ) -> Standing:
        """The pending jobs that have stood in line longest, as far as about `looks` commands go. Changes nothing.

        `lanes` are looked at before all others; `first`, `lane` and `cursor` of the answer lead on.
        """
        jobs, then, lane_then, cursor_then, now_ms = self._run(
            self._call("oldest", {"lanes": lanes}, first=first, lane=lane, cursor=cursor, looks=looks)
        )
        return Standing(
            jobs=[
                StandingJob(tenant=tenant.decode(), lane=lane.decode(), id=job_id.decode(), since_ms=int(since))
                for tenant, lane, job_id, since in jobs
            ],
            first=then,
            lane=lane_then,
            cursor=cursor_then.decode(),
            now_ms=now_ms,
        )

    def explain(self, job_id: str, *, live_ms: int, most: int, walked: int, looks: int) -> WaitFacts:
        """What one job waits for, at one moment; lua/explain.lua says what bounds what. Changes nothing."""
        call = self._call("explain", id=job_id, live_ms=live_ms, most=most, walked=walked, looks=looks)
        return wait_facts(job_id, self._run(call))

    def unlimited(self, scopes: Sequence[tuple[str, str]]) -> tuple[int, list[bool]]:
        """The version of the configuration, and of each (tenant, lane) whether nothing in it holds its jobs back."""
        return unlimited(self.client, self.keys, scopes)


def _page(reply: Reply) -> Page:
    size, found, position, last_score, last_id = reply
    return Page(
        ids=[one.decode() for one in found[::2]],
        size=size,
        position=position,
        cursor=(last_score.decode(), last_id.decode()) if last_id else None,
    )
