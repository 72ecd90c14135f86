"""`manage.py ductor flow RUN`: all that is known of one run, and what can be done to it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.management.base import CommandError

from flows.cli.showing import text_of
from flows.facts import as_mapping
from flows.handle import RunHandle, get_run
from queueapp.cli.command import ExampleFormatter
from queueapp.cli.console import Console, json_option
from queueapp.cli.table import as_json, printable

logger = logging.getLogger(__name__)

EXAMPLES = """examples:
  {command} rP7x0123456789abcdefgh
  {command} rP7x0123456789abcdefgh --ascii           its steps as a graph, in plain characters
  {command} rP7x0123456789abcdefgh --contents        also input, outputs and tracebacks
  {command} rP7x0123456789abcdefgh --cancel --note "wrong file"
  {command} rP7x0123456789abcdefgh --resume          what failed runs again, what completed is kept
  {command} rP7x0123456789abcdefgh --retry import_chunk --yes
  {command} rP7x0123456789abcdefgh --event approved --payload '{"by": "kim"}'
"""


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser(
        "flow", help="all that is known of one run of a flow; cancel, resume, retry", formatter_class=ExampleFormatter
    )
    parser.epilog = EXAMPLES.replace("{command}", parser.prog)
    parser.add_argument("id", metavar="RUN", help="as `ductor flows` shows it")
    parser.add_argument("--ascii", action="store_true", help="draw its steps as a graph, in plain characters")
    parser.add_argument("--contents", action="store_true", help="also input, outputs and tracebacks, with MASK applied")
    acts = parser.add_mutually_exclusive_group()
    acts.add_argument("--cancel", action="store_true", help="nothing of it starts any more; what runs is told to stop")
    acts.add_argument("--resume", action="store_true", help="go on after a failure or a cancel; what completed is kept")
    acts.add_argument("--retry", metavar="STEP", default="", help="run this step again, which failed or was cut off")
    acts.add_argument("--event", metavar="NAME", default="", help="send it an event of this name")
    parser.add_argument("--payload", metavar="JSON", default="", help="what comes with the event (default: null)")
    parser.add_argument("--event-id", metavar="ID", default="", help="sent twice with one id, the event is there once")
    parser.add_argument("--note", default="", help="why it is cancelled; kept with the run")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    json_option(parser)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What can be done to a run, in words and in deed."""

    asked: str
    done: str
    nothing: str
    """Said when there was nothing to do."""
    do: Callable[[RunHandle], bool]


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end. Raises UnknownRun, and RunRefused for what cannot be done to it now."""
    _refuse_what_does_not_belong(options)
    act = _chosen(options)
    handle = get_run(options["id"])
    if act is not None:
        return _do(act, handle, options, console)
    facts = as_mapping(handle.row, contents=options["contents"])
    return as_json(facts) if options["json"] else text_of(facts, drawn=options["ascii"])


def _refuse_what_does_not_belong(options: Mapping[str, Any]) -> None:
    for name, to in (("payload", "event"), ("event_id", "event"), ("note", "cancel")):
        if options[name] and not options[to]:
            raise CommandError(f"--{name.replace('_', '-')} belongs to --{to}: say both, or neither.")


def _chosen(options: Mapping[str, Any]) -> Act | None:
    note, step, event = options["note"], options["retry"], options["event"]
    if options["cancel"]:
        return Act(
            asked="cancel it", done="Cancelled.", nothing="It had ended already.", do=lambda run: run.cancel(note)
        )
    if options["resume"]:
        return Act(asked="let it go on", done="It goes on.", nothing="Nothing was left to do.", do=RunHandle.resume)
    if step:
        return Act(
            asked=f"run its step {step!r} again",
            done="It runs again.",
            nothing="Nothing was left to do.",
            do=lambda run: run.retry_step(step),
        )
    if event:
        payload = _payload(options["payload"])
        return Act(
            asked=f"send it the event {event!r}",
            done="Sent.",
            nothing="It was sent before.",
            do=lambda run: run.send_event(event, payload, event_id=options["event_id"]),
        )
    return None


def _do(act: Act, handle: RunHandle, options: Mapping[str, Any], console: Console) -> str:
    row = handle.row
    question = f"Run {row.id} of {row.flow}, of the tenant {row.tenant}, is {row.state}: {act.asked}?"
    if not (options["yes"] or console.confirm(printable(question))):
        return "Nothing was changed."
    acted = act.do(handle)
    logger.info("A run was acted on", extra={"run": row.id, "what": act.asked, "acted": acted, "by": console.user})
    handle.refresh()
    if options["json"]:
        return as_json({"run": row.id, "acted": acted, "state": handle.state})
    return f"{act.done} It is {handle.state}." if acted else act.nothing


def _payload(text: str) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError as error:
        raise CommandError(f"--payload is no JSON: {error}.") from None
