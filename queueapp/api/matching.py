"""What is done to all jobs that match: counted first if asked, then cancelled, retried or discarded, so many a request.

Only jobs of the tenants for whom one may speak, and of tasks of the API, exist here, as everywhere in it. The work is
`queueapp.inspection.bulk`, as for one job and for many ids.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from queueapp.api import operator_shapes
from queueapp.api.actions import DISCARD, user_name
from queueapp.api.requests import CancelMatching, DeadMatching, Matching, RetryMatching
from queueapp.api.schema import operation
from queueapp.api.view import DuctorView, is_told
from queueapp.inspection.actions import Done
from queueapp.inspection.bulk import Pace, cancel_many, discard_many, retry_many
from queueapp.inspection.selection import NOT_ENDED, PAGES_OF_REQUEST, Count, Selection, count
from queueapp.producer.discovery import load_tasks, registry
from queueapp.states import State

MOST = 1_000
"""Jobs that one request acts on."""
OPERATE = "queueapp.operate_job"
BOUNDED = _("At most %(most)d a request, the oldest first: ask again while “more” is true, with the same “as_of”.") % {
    "most": MOST
}
FAULTS = (400, 404, 409, 413, 415)


class MatchingView(DuctorView):
    """Counts, and acts on what was counted."""

    permission = OPERATE

    def check_permissions(self, request: Request) -> None:
        super().check_permissions(request)
        # Before anything is looked up, so that the answer tells nothing about the jobs.
        if not self.allowed(self.permission):
            raise PermissionDenied(
                _("This needs the permission %(permission)s.") % {"permission": self.permission}, code="permission"
            )

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
            as_of_ms=int(as_of.timestamp() * 1000) if as_of is not None else 0,
        ).fixed()

    def answer(self, asked: type[Matching], states: tuple[State, ...], act: Any, **how: Any) -> Response:
        """Counts or acts, and says what became of them."""
        request = asked(data=self.request.data)
        request.is_valid(raise_exception=True)
        values = request.validated_data
        named = (State(values["state"]),) if "state" in values else states
        meant = self.selection(values, named)
        if values["dry_run"]:
            return Response(_told(meant, count(meant, pages=PAGES_OF_REQUEST), Done()))
        if "rate" in values:
            how["pace"] = Pace(rate=values["rate"], waits=False)
        done = act(meant, by=user_name(self.request), expected=values.get("expected"), most=MOST, **how)
        met = sum(done.counts.values())
        return Response(_told(meant, Count(by_state={State.ENDED: met}, exact=not done.more), done))


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
        "fault": bool(done.fault),
    }


def told_tasks() -> tuple[str, ...]:
    """The tasks of the API, under every name that their jobs may have."""
    load_tasks()
    return tuple(sorted(name for name, task in registry.items() if task.api))


class CancelMatchingView(MatchingView):
    """`POST jobs/cancel-matching/`."""

    @operation(
        "ductor_jobs_cancel_matching",
        _("Cancel all jobs that match"),
        description=BOUNDED,
        request=CancelMatching,
        answers={200: operator_shapes.Matched},
        faults=FAULTS,
    )
    def post(self, request: Request, **kwargs: Any) -> Response:
        return self.answer(CancelMatching, NOT_ENDED, cancel_many)


class RetryMatchingView(MatchingView):
    """`POST dead-letters/retry-matching/`."""

    @operation(
        "ductor_dead_letters_retry_matching",
        _("Retry all dead letters that match"),
        description=BOUNDED,
        request=RetryMatching,
        answers={200: operator_shapes.Matched},
        faults=FAULTS,
    )
    def post(self, request: Request, **kwargs: Any) -> Response:
        return self.answer(RetryMatching, (State.DEAD,), retry_many, pace=Pace(waits=False))


class DiscardMatchingView(MatchingView):
    """`POST dead-letters/discard-matching/`."""

    permission = DISCARD

    @operation(
        "ductor_dead_letters_discard_matching",
        _("Discard all dead letters that match"),
        description=BOUNDED,
        request=DeadMatching,
        answers={200: operator_shapes.Matched},
        faults=FAULTS,
    )
    def post(self, request: Request, **kwargs: Any) -> Response:
        return self.answer(DeadMatching, (State.DEAD,), discard_many)
