"""What is done to all jobs that match: counted first if asked, then cancelled, retried or discarded, so many a request.

Only jobs of the tenants for whom one may speak, and of tasks of the API, exist here, as everywhere in it. The work is
`queueapp.inspection.bulk`, as for one job and for many ids; so are the permissions (`schema.Operation`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Unpack

from django.utils.translation import gettext_lazy as _
from rest_framework.request import Request
from rest_framework.response import Response

from queueapp.api import cursors, faults, operator_shapes
from queueapp.api.actions import user_name
from queueapp.api.requests import CancelMatching, DeadMatching, Matching, RetryMatching
from queueapp.api.schema import Text, operation
from queueapp.api.view import DuctorView, is_told
from queueapp.inspection.actions import Done
from queueapp.inspection.bulk import MOST_OF_REQUEST, How, Redrive, cancel_many, discard_many, retry_many
from queueapp.inspection.selection import NOT_ENDED, READS_OF_REQUEST, Count, Selection, count
from queueapp.permissions import DISCARD_JOB, OPERATE_JOB
from queueapp.producer.discovery import load_tasks, registry
from queueapp.states import State

BOUNDED = _("At most %(most)d a request, the oldest first: ask again while “more” is true, with its “cursor”.") % {
    "most": MOST_OF_REQUEST
}
CURSOR_FORM = re.compile(r"([0-9]{1,16}) ([0-9]{1,16}) (\S*)")


class MatchingView(DuctorView):
    """Counts, and acts on what was counted."""

    def selection(self, values: dict[str, Any], states: tuple[State, ...]) -> Selection:
        """What the request means, as of a moment."""
        tenant = self.one_tenant(values.get("tenant"))
        tasks = told_tasks() if "task" not in values else (values["task"],) if is_told(values["task"]) else ()
        as_of: datetime | None = values.get("as_of")
        return Selection(
            pool=self.pool(values["pool"]),
            states=states if tasks else (),
            tenant=tenant or "",
            lane=values.get("lane", ""),
            tasks=tasks,
            reason=values.get("reason", ""),
            group=values.get("group", ""),
            as_of_ms=max(1, int(as_of.timestamp() * 1000)) if as_of is not None else 0,  # 0 would mean now
        ).fixed()

    def answer(self, asked: type[Matching], states: tuple[State, ...], act: Callable[..., Done]) -> Response:
        """Counts or acts, and says what became of them. What ended in a fault has not met all."""
        request = asked(data=self.request.data)
        request.is_valid(raise_exception=True)
        values = request.validated_data
        named = (State(values["state"]),) if "state" in values else states
        as_of_ms, until_ms, place = _left_off(values.pop("cursor", None))
        meant = self.selection(values, named)
        if as_of_ms:
            meant = replace(meant, as_of_ms=as_of_ms)
        if values["dry_run"]:
            return Response(_told(meant, count(meant, reads=READS_OF_REQUEST), Done()))
        how = How(by=user_name(self.request), expected=values.get("expected"), most=MOST_OF_REQUEST, place=place)
        pace = {"rate": values["rate"], "from_ms": until_ms} if "rate" in values else {"from_ms": until_ms}
        done = act(meant, pace=pace, **how) if act is _retry else act(meant, **how)
        met = Count(by_state={State.ENDED: sum(done.counts.values())}, exact=not (done.more or done.fault))
        return Response(_told(meant, met, done))


def _told(meant: Selection, found: Count, done: Done) -> dict[str, Any]:
    return {
        "pool": meant.pool,
        "as_of": datetime.fromtimestamp(meant.as_of_ms / 1000, tz=UTC),
        "matching": found.number,
        "exact": found.exact,
        "done": done.done,
        "stopping": done.counts.get("stopping", 0),
        "refused": done.refused,
        "changed": done.changed,
        "more": done.more,
        "cursor": cursors.sealed(f"{meant.as_of_ms} {done.until_ms} {done.place}") if done.more else None,
        "fault": bool(done.fault),
    }


def _left_off(cursor: str | None) -> tuple[int, int, str]:
    """As of which moment, when the next dead letter is due, and where the request before stopped."""
    if cursor is None:
        return 0, 0, ""
    match = CURSOR_FORM.fullmatch(cursors.opened(cursor))
    if match is None:
        raise faults.wrong_cursor()
    return int(match[1]), int(match[2]), match[3]


def told_tasks() -> tuple[str, ...]:
    """The tasks of the API, under every name that their jobs may have."""
    load_tasks()
    return tuple(sorted(name for name, task in registry.items() if task.api))


def matching(
    name: str, summary: Text, *, asked: type[Matching], states: tuple[State, ...], act: Callable[..., Done], **said: str
) -> Callable[..., Response]:
    """The `post` of one action on all that match."""

    @operation(
        name,
        summary,
        description=BOUNDED,
        request=asked,
        answers={200: operator_shapes.Matched},
        faults=(404, 409),
        **said,
    )
    def post(view: MatchingView, request: Request, **kwargs: Any) -> Response:
        return view.answer(asked, states, act)

    return post


def _retry(meant: Selection, *, pace: dict[str, Any], **how: Unpack[How]) -> Done:
    """Laid out at the rate at once: a request cannot wait."""
    return retry_many(meant, redrive=Redrive(waits=False, **pace), **how)


class CancelMatchingView(MatchingView):
    """`POST jobs/cancel-matching/`."""

    post = matching(
        "ductor_jobs_cancel_matching",
        _("Cancel all jobs that match"),
        asked=CancelMatching,
        states=NOT_ENDED,
        act=cancel_many,
        operator_needs=OPERATE_JOB,
    )


class RetryMatchingView(MatchingView):
    """`POST dead-letters/retry-matching/`."""

    post = matching(
        "ductor_dead_letters_retry_matching",
        _("Retry all dead letters that match"),
        asked=RetryMatching,
        states=(State.DEAD,),
        act=_retry,
        operator_needs=OPERATE_JOB,
    )


class DiscardMatchingView(MatchingView):
    """`POST dead-letters/discard-matching/`."""

    post = matching(
        "ductor_dead_letters_discard_matching",
        _("Discard all dead letters that match"),
        asked=DeadMatching,
        states=(State.DEAD,),
        act=discard_many,
        needs=DISCARD_JOB,
    )
