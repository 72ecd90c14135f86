"""`manage.py ductor start-flow NAME`: a run of a flow begins, and perhaps its end is waited for."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from flows.cli.showing import text_of
from flows.facts import as_mapping
from flows.versions import current
from queueapp.cli.command import ExampleFormatter, number
from queueapp.cli.console import Console, json_option
from queueapp.cli.table import as_json

logger = logging.getLogger(__name__)

EXAMPLES = """examples:
  {command} import_upload --input '{"upload_id": 7}' --tenant acme
  {command} import_upload --input '[7]' --key upload-7         started twice with one key it exists once
  {command} import_upload --input '[7]' --wait 60              exit code 0 when it has completed, else 1
"""


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("start-flow", help="a run of a flow begins", formatter_class=ExampleFormatter)
    parser.epilog = EXAMPLES.replace("{command}", parser.prog)
    parser.add_argument("name", metavar="FLOW", help="its name")
    parser.add_argument("--input", default="[]", metavar="JSON", help="its arguments: a list, or an object by name")
    parser.add_argument("--tenant", default="", help="whose run it is (default: as for a job)")
    parser.add_argument("--key", default="", help="a run of this flow, tenant and key that is there already is taken")
    parser.add_argument(
        "--wait", type=number(0, 86_400), metavar="SECONDS", help="wait so long for its end (default: not at all)"
    )
    parser.add_argument("--contents", action="store_true", help="show input and outputs, too, with MASK applied")
    json_option(parser)


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end. Raises RunFailed and WaitTimeout for a run that is waited for."""
    args, kwargs = _arguments(options["input"])
    flow = current(options["name"])
    handle = flow.using(tenant=options["tenant"] or None, key=options["key"] or None).start(*args, **kwargs)
    if not handle.existed:
        logger.info("A run was started", extra={"run": handle.id, "flow": flow.name, "by": console.user})
    if options["wait"] is None and not options["json"]:
        there = "there already, and " if handle.existed else ""
        return f"Run {handle.id} of {flow.name} is {there}{handle.state}."
    if options["wait"] is not None:
        console.note(f"Run {handle.id} of {flow.name} is waited for.")
        handle.wait(options["wait"])
    facts = as_mapping(handle.refresh().row, contents=options["contents"])
    return as_json(facts) if options["json"] else text_of(facts, drawn=False)


def _arguments(text: str) -> tuple[list[Any], dict[str, Any]]:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise CommandError(f"--input is no JSON: {error}.") from None
    if isinstance(given, list):
        return given, {}
    if isinstance(given, dict):
        return [], given
    raise CommandError(f"--input is {text}: it must be a list of arguments, or an object with them by name.")
