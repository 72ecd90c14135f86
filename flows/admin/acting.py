"""What people do to a run: first a page that says what will happen, then, confirmed, the act, its record, its message.

Each is one address that takes POST alone, and a permission of its own. Without `confirmed` it changes nothing. What
cannot be done to the run as it is now (`operations`) is told as a message; what was typed wrong, above what was typed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from flows import models
from flows.admin.showing import run_url, state_in_words, stored_definition
from flows.definition import Definition
from flows.handle import RunHandle
from flows.operations import RESUMABLE
from flows.permissions import CANCEL_RUN, RESUME_RUN, RETRY_STEP, SEND_EVENT
from queueapp.admin.choosing import OF_FORMS, posted_word, refuse_unknown
from queueapp.admin.pages import draw
from queueapp.admin.records import record
from queueapp.conf import settings
from queueapp.errors import DuctorError, InvalidOption
from queueapp.producer.handover import new_id

REASON_MOST = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What has come of an act: for the person, and for the admin's log."""

    said: str
    what: str


Act = Callable[[RunHandle, QueryDict], Done | None]
"""None: it came to nothing, as somebody else had done it. Raises InvalidOption for what was typed, else DuctorError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """An act, what it needs and what it means."""

    name: str
    needs: str
    button: Promise
    meaning: Promise
    fields: frozenset[str]
    act: Act
    fits: Callable[[models.Run, Definition | None], bool]
    """Whether the page of such a run has a button for it."""
    dangerous: bool = False


def confirm_or_act(owner: admin.ModelAdmin[Any], request: HttpRequest, verb: Verb, run_id: str) -> HttpResponse:
    """The view behind every act."""
    run = models.Run.objects.filter(pk=run_id).first()
    if run is None:
        raise Http404(gettext("There is no run of this id."))
    back, fault = HttpResponseRedirect(run_url(request, run.id)), ""
    try:
        refuse_unknown(request.POST, OF_FORMS | verb.fields)
    except InvalidOption as error:
        messages.error(request, str(error))
        return back
    if "confirmed" in request.POST:
        try:
            done = verb.act(RunHandle(run), request.POST)
        except InvalidOption as error:
            fault = str(error)
        except DuctorError as error:
            messages.error(request, str(error))
            return back
        else:
            if done is None:
                messages.warning(request, gettext("Somebody was first. Nothing was changed."))
            else:
                messages.success(request, done.said)
                record(request, models.Run, str(run), done.what, object_id=run.id)
            return back
    typed = {name: request.POST.get(name, "") for name in verb.fields}
    context = {
        "verb": verb,
        "run": run,
        "state": state_in_words(run),
        "typed": typed,
        "fault": fault,
        "reason_most": REASON_MOST,
        "events": _events_of(stored_definition(run)[0]),
        "event_id": typed.get("event_id") or new_id(),
        "back": back.url,
    }
    return draw(owner, request, "act.html", verb.button, context)


# -- the acts ----------------------------------------------------------------------------------------------------------


def _cancel(run: RunHandle, posted: QueryDict) -> Done | None:
    reason = posted.get("reason", "").replace("\0", "").strip()[:REASON_MOST]
    if not run.cancel(reason):
        return None
    return Done(said=gettext("The run was cancelled."), what=f"cancel: {reason}".removesuffix(": "))


def _resume(run: RunHandle, posted: QueryDict) -> Done | None:
    run.resume()
    return Done(said=gettext("The run goes on."), what="resume")


def _retry(run: RunHandle, posted: QueryDict) -> Done | None:
    step = posted_word(posted, "step")
    run.retry_step(step)
    return Done(said=gettext("The step “%(step)s” runs again.") % {"step": step}, what=f"retry step {step}")


def _send(run: RunHandle, posted: QueryDict) -> Done | None:
    name, event_id = posted_word(posted, "name"), posted_word(posted, "event_id")
    if name not in (known := _events_of(stored_definition(run.row)[0])):
        raise InvalidOption(
            gettext("name is “%(name)s”: no step of this flow waits for it. It must be one of: %(known)s.")
            % {"name": name[:60], "known": ", ".join(known) or "–"}
        )
    if not run.send_event(name, _payload(posted.get("payload", "")), event_id=event_id):
        return None
    return Done(said=gettext("The event “%(name)s” was sent.") % {"name": name}, what=f"send event {name} {event_id}")


def _payload(text: str) -> Any:
    """What was typed as JSON; None for nothing. Raises InvalidOption."""
    if not text.strip():
        return None
    if len(text.encode()) > settings.max_payload_bytes:
        raise InvalidOption(
            gettext("payload has more than %(most)d bytes. Store what is large elsewhere and send where.")
            % {"most": settings.max_payload_bytes}
        )
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidOption(
            gettext("payload is no JSON: %(error)s. It must be such as {“approved”: true}, or empty.")
            % {"error": str(error)[:200]}
        ) from None


def _events_of(definition: Definition | None) -> list[str]:
    """The events that steps of a flow wait for."""
    steps = () if definition is None else definition.steps
    return list(dict.fromkeys(step.target for step in steps if step.kind == "event"))


CANCEL = Verb(
    name="cancel",
    needs=CANCEL_RUN,
    button=_("Cancel the run"),
    meaning=_(
        "Nothing of it starts any more, and its sub-flows are cancelled with it. Bodies that run are told to stop; "
        "what they do afterwards counts for nothing. Nothing is undone. It can be resumed."
    ),
    fields=frozenset({"reason"}),
    act=_cancel,
    fits=lambda run, definition: not run.has_ended,
    dangerous=True,
)
RESUME = Verb(
    name="resume",
    needs=RESUME_RUN,
    button=_("Resume the run"),
    meaning=_(
        "What failed, was cut off or was never reached runs; what has completed is kept and does not run again. A run "
        "whose undoing failed goes on undoing."
    ),
    fields=frozenset(),
    act=_resume,
    fits=lambda run, definition: run.state in RESUMABLE,
)
RETRY = Verb(
    name="retry",
    needs=RETRY_STEP,
    button=_("Retry the step"),
    meaning=_("This step runs again, of a map the items that failed, and what it had cut off may follow."),
    fields=frozenset({"step"}),
    act=_retry,
    fits=lambda run, definition: False,  # its buttons stand beside the steps
)
SEND = Verb(
    name="send",
    needs=SEND_EVENT,
    button=_("Send an event"),
    meaning=_("A step that waits for it takes it and goes on; until one does, the run keeps it."),
    fields=frozenset({"name", "payload", "event_id"}),
    act=_send,
    fits=lambda run, definition: not run.has_ended and bool(_events_of(definition)),
)
VERBS = (CANCEL, RESUME, RETRY, SEND)
