"""Dead letters as JSON lines, streamed in bounded pages: masked, arguments only for those who may see contents.

One line a letter, the newest first, at most `MOST`; when more match, or the store goes away midway, a last line says so
(`{"more": ...}`, `{"fault": ...}`). What was exported stands in DeadLetterInspection.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from itertools import islice

from asgiref.sync import sync_to_async
from django.contrib import messages
from django.core.handlers.asgi import ASGIRequest
from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect, StreamingHttpResponse
from django.utils.translation import gettext as _

from queueapp.admin.choosing import Chosen, read_chosen
from queueapp.admin.pages import acting_pool
from queueapp.admin.records import record, username
from queueapp.errors import DuctorError
from queueapp.inspection.actions import record_export
from queueapp.inspection.deadletters import READ_TOGETHER, every_dead_letter
from queueapp.inspection.facts import as_mapping
from queueapp.inspection.jobs import JobView, find_jobs
from queueapp.models import DeadLetters
from queueapp.states import State

MOST = 10_000
BATCH = READ_TOGETHER


def export(request: HttpRequest, *, back: str, contents: bool) -> HttpResponseBase:
    """The file; `back` with a message when the store is away or nothing was chosen. `contents`: with the arguments."""
    try:
        chosen = read_chosen(request, acting_pool(request), (State.DEAD,))
    except DuctorError as error:
        messages.error(request, str(error))
        return HttpResponseRedirect(back)
    if chosen.none:
        messages.error(request, _("No job was chosen, so that nothing was exported."))
        return HttpResponseRedirect(back)
    what = "all that match" if chosen.everything else f"{len(chosen.ids)} chosen"
    record(request, DeadLetters, f"dead letters of {chosen.pool}", f"export: {what}")
    lines = _lines(_letters(chosen), username(request), contents=contents)
    return StreamingHttpResponse(
        _in_threads(lines) if isinstance(request, ASGIRequest) else lines,
        content_type="application/jsonl",
        headers={"Content-Disposition": f'attachment; filename="dead-letters-{chosen.pool}.jsonl"'},
    )


def _letters(chosen: Chosen) -> Iterator[JobView]:
    if chosen.selection is not None:
        yield from every_dead_letter(chosen.pool, chosen.selection)
    else:
        for first in range(0, len(chosen.ids), BATCH):
            found = find_jobs(chosen.ids[first : first + BATCH])
            yield from (job for job in found if job.record.state is State.DEAD)


def _lines(letters: Iterator[JobView], by: str, *, contents: bool) -> Iterator[str]:
    """JSON lines in pieces of a batch; each batch is recorded before it is given away."""
    taken = islice(letters, MOST)
    try:
        while batch := list(islice(taken, BATCH)):
            record_export(batch, by=by)
            yield "".join(_line(as_mapping(letter, payload=contents)) for letter in batch)
        if next(letters, None) is not None:
            yield _line({"more": f"One export takes the newest {MOST}; narrow the filter for the others."})
    except DuctorError as error:
        yield _line({"fault": str(error)})


def _line(value: object) -> str:
    return json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False) + "\n"


async def _in_threads(lines: Iterator[str]) -> AsyncIterator[str]:
    """The same under ASGI, where the loop must not wait for the store."""
    while (piece := await sync_to_async(lambda: next(lines, None))()) is not None:
        yield piece
