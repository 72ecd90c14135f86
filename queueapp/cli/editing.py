"""`manage.py ductor dlq retry ID --args JSON --kwargs JSON`: a dead letter corrected, and sent back to work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from queueapp.cli.acting import refuse_conditions
from queueapp.cli.command import ExampleFormatter
from queueapp.cli.console import Console
from queueapp.cli.table import printable
from queueapp.inspection.editing import Draft, draft, save
from queueapp.inspection.edits import parsed
from queueapp.inspection.jobs import find_job
from queueapp.inspection.masking import HIDDEN

EXAMPLES = f"""examples, with other arguments than it died with:
  {{command}} 3gk2xw.0.0123456789abcdefghijkl --kwargs '{{"amount": 5}}' --dry-run
      shows what would change; arguments are shown by `ductor job ID --payload`
  {{command}} 3gk2xw.0.0123456789abcdefghijkl --args '[7]' --kwargs '{{"amount": 5, "token": "{HIDDEN}"}}'
      {HIDDEN} leaves a value that is hidden as it is; what is not named is no argument any more
"""


def add_options(parser: Any) -> None:
    parser.add_argument("--args", dest="arguments", metavar="JSON", help="of one ID: with these positional arguments")
    parser.add_argument("--kwargs", metavar="JSON", help="of one ID: with these arguments by name")
    parser.formatter_class = ExampleFormatter
    parser.epilog = EXAMPLES.replace("{command}", parser.prog)


def is_asked(options: Mapping[str, Any]) -> bool:
    """Whether other arguments are given."""
    return options.get("arguments") is not None or options.get("kwargs") is not None


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end."""
    refuse_conditions(options)
    if len(options["ids"]) != 1:
        raise CommandError("--args and --kwargs are about one dead letter: say its ID.")
    (public_id,) = options["ids"]
    job = find_job(public_id)
    if job is None:
        raise CommandError(f"No job is called {public_id!r}; `ductor jobs` and `dlq list` show the ids.")
    args, kwargs = options.get("arguments"), options.get("kwargs")
    made = draft(
        job,
        args=None if args is None else parsed(args, "--args", list),
        kwargs=None if kwargs is None else parsed(kwargs, "--kwargs", dict),
    )
    shown = _shown(made)
    if options["dry_run"]:
        return f"{shown}\nWould edit and retry it. Nothing was changed."
    if not options["yes"]:
        console.say(shown)
        if not console.confirm("Edit and retry it?"):
            return "Nothing was changed."
    saved = save(made, by=console.user, note=options["note"], retry=True)
    summary = f"Edited ({', '.join(made.places)}); {saved.retried.summary() if saved.retried else ''}"
    if saved.retried is None or saved.retried.done != 1:
        raise CommandError(f"{summary} It keeps its new arguments.")
    return summary


def _shown(made: Draft) -> str:
    record = made.job.record
    lines = [f"{record.task} of {record.tenant}, {made.job.id}:"]
    lines += [f"  {printable(f'{change.place}: {change.words}')}" for change in made.changes]
    if made.begins_anew:
        lines.append("  What its last run saved (its checkpoint) goes: with other arguments it begins anew.")
    return "\n".join(lines)
