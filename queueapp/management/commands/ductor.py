"""Looks into the queue and acts on it. Everything it does is in `queueapp.cli`."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from queueapp.cli.command import DuctorCommand, whole
from queueapp.cli.dlq import Selection, discard, listing, retry
from queueapp.cli.job import job
from queueapp.cli.status import status


class Command(DuctorCommand):
    help = "How the pools stand, what became of a job, and what to do with dead letters."
    examples = """examples:
  {command} status
  {command} status emails --json
  {command} job 3gk2xw.0.0123456789abcdefghijkl --payload
  {command} dlq list --pool emails
  {command} dlq retry --task shop.tasks.send_mail --yes
  {command} dlq discard 3gk2xw.0.0123456789abcdefghijkl
"""

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="status | job | dlq")

        status_parser = verbs.add_parser("status", help="how the pools stand")
        status_parser.add_argument("pools", nargs="*", metavar="POOL", help="default: every pool")
        _json(status_parser)

        job_parser = verbs.add_parser("job", help="all that is known of one job")
        job_parser.add_argument("id", metavar="ID", help="as result.id has it, such as 3gk2xw.0.0123456789abcdefghijkl")
        job_parser.add_argument(
            "--payload", action="store_true", help="also arguments, result and tracebacks, with MASK applied"
        )
        _json(job_parser)

        dlq_parser = verbs.add_parser("dlq", help="dead letters")
        actions = dlq_parser.add_subparsers(dest="action", required=True, metavar="list | show | retry | discard")
        list_parser = actions.add_parser("list", help="newest first")
        list_parser.add_argument("--pool", default="", help="only of this pool (default: every pool)")
        list_parser.add_argument("--tenant", default="", help="only of this tenant")
        list_parser.add_argument(
            "--offset", type=whole(0, 10**9), default=0, metavar="N", help="leave out the newest N of each pool"
        )
        list_parser.add_argument(
            "--count", type=whole(1, 1000), default=50, metavar="N", help="show N of each pool at most (default: 50)"
        )
        _json(list_parser)
        show_parser = actions.add_parser("show", help="one dead letter, with its traceback")
        show_parser.add_argument("id", metavar="ID", help="as `dlq list` shows it")
        show_parser.add_argument(
            "--payload", action="store_true", help="also arguments and tracebacks, with MASK applied"
        )
        _json(show_parser)
        for name, text in (("retry", "back to work, with fresh budgets"), ("discard", "away for good")):
            act_parser = actions.add_parser(name, help=text)
            act_parser.add_argument("ids", nargs="*", metavar="ID", help="these, as `dlq list` shows them")
            act_parser.add_argument("--pool", default="", help="those of this pool")
            act_parser.add_argument("--tenant", default="", help="those of this tenant")
            act_parser.add_argument("--task", default="", help="those of this task (its dotted name)")
            act_parser.add_argument(
                "--reason", default="", help="those with this reason, such as error, worker_lost, unknown_task"
            )
            act_parser.add_argument(
                "--all", dest="everything", action="store_true", help="all of the pool, or of every pool"
            )
            act_parser.add_argument("--yes", action="store_true", help="do not ask")

    def perform(self, **options: Any) -> None:
        match options["verb"], options.get("action"):
            case "status", _:
                text = status(options["pools"], json=options["json"])
            case "job", _:
                text = job(options["id"], json=options["json"], payload=options["payload"])
            case "dlq", "list":
                text = listing(
                    options["pool"],
                    tenant=options["tenant"],
                    offset=options["offset"],
                    count=options["count"],
                    json=options["json"],
                )
            case "dlq", "show":
                text = job(options["id"], json=options["json"], payload=options["payload"])
            case "dlq", action:
                selection = Selection(
                    **{name: options[name] for name in ("ids", "pool", "tenant", "task", "reason", "everything")}
                )
                act = retry if action == "retry" else discard
                text = act(selection, confirm=lambda question: options["yes"] or self._asks(question))
        self.stdout.write(text)

    def _asks(self, question: str) -> bool:
        try:
            return input(f"{question} [y/N] ").strip().lower() in {"y", "yes"}
        except EOFError:
            raise CommandError("There is nobody to ask; say --yes.") from None


def _json(parser: Any) -> None:
    parser.add_argument("--json", action="store_true", help="JSON instead of text")
