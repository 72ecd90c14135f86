"""`manage.py ductor why ID`: what a job waits for, in one sentence and its parts, and an estimate of when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC
from typing import Any

from django.core.management.base import CommandError

from queueapp.cli.command import ExampleFormatter
from queueapp.cli.console import Console, json_option
from queueapp.cli.table import as_json, printable, prose
from queueapp.inspection.estimates import in_words
from queueapp.inspection.explain import GONE, Why, as_mapping, explain

EXAMPLES = """examples:
  {command} 3gk2xw.0.0123456789abcdefghijkl
  {command} 3gk2xw.0.0123456789abcdefghijkl --json
  {command} 3gk2xw.0.0123456789abcdefghijkl --payload   with the text of its concurrency keys
"""


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("why", help="what a job waits for, and until when", formatter_class=ExampleFormatter)
    parser.epilog = EXAMPLES.replace("{command}", parser.prog)
    parser.add_argument("id", metavar="ID", help="as result.id has it")
    parser.add_argument(
        "--payload", action="store_true", help="also the text of concurrency keys, which arguments are part of"
    )
    json_option(parser)


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end. CommandError for a job that is not there."""
    why = explain(options["id"], contents=options["payload"])
    if why.state == GONE:
        raise CommandError(f"No job {options['id']!r}: {why.reasons[0].text}.")
    return as_json(as_mapping(why)) if options["json"] else as_text(why)


def as_text(why: Why) -> str:
    """The answer for the terminal: the sentence, its parts where there are several, when, and what to do."""
    return "\n".join(prose(printable(line)) for line in _lines(why))


def _lines(why: Why) -> Iterator[str]:
    yield why.sentence
    if len(why.reasons) > 1:
        for reason in why.reasons:
            yield f"  {'-' if reason.blocks else ' '} {reason.text}"
    for reason in why.reasons:
        if len(reason.held_by) > 1:
            yield f"held by: {' '.join(reason.held_by)}"
    if why.estimate is not None:
        yield in_words(why.estimate)
    if why.state == "dead":
        yield f"to do: manage.py ductor dlq retry {why.id}, or discard it"
    yield f"as of {why.as_of.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
