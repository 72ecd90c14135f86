"""Looks into the queue and acts on it. Everything it does is in `queueapp.cli`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.core.management.base import CommandParser

from queueapp import extensions
from queueapp.cli import (
    cancel,
    dlq,
    doctor,
    drain,
    erase,
    fsck,
    job,
    jobs,
    move,
    obliterate,
    pausing,
    schedules,
    status,
    tenants,
    why,
)
from queueapp.cli.adopt import adopt
from queueapp.cli.command import DuctorCommand
from queueapp.cli.console import Console, json_option
from queueapp.cli.sync import sync
from queueapp.cli.upgrade import upgrade

LOOKING = {
    "status": status,
    "tenants": tenants,
    "jobs": jobs,
    "job": job,
    "why": why,
    "dlq": dlq,
    "schedules": schedules,
    "cancel": cancel,
    "move": move,
    "pause": pausing,
    "resume": pausing,
    "drain": drain,
    "obliterate": obliterate,
    "erase": erase,
    "doctor": doctor,
    "fsck": fsck,
}
"""Verb → the module of `queueapp.cli` that has its parser and does it."""


class Command(DuctorCommand):
    help = "How the pools stand, what became of a job, what to do with dead letters, and deploys."
    examples = """examples:
  {command} status
  {command} status emails --json
  {command} tenants emails               who had how much, against what it was entitled to
  {command} job 3gk2xw.0.0123456789abcdefghijkl --payload
  {command} why 3gk2xw.0.0123456789abcdefghijkl       what it waits for, and until when
  {command} jobs emails --state scheduled --tenant acme
  {command} dlq groups                   what died, one line for each cause
  {command} dlq list --group 5f0c2a91d3be
  {command} dlq retry --task shop.tasks.send_mail --dry-run
  {command} dlq export --pool emails > dead.jsonl
  {command} dlq discard 3gk2xw.0.0123456789abcdefghijkl
  {command} cancel --pool emails --tenant acme        all that waits of acme, at once
  {command} cancel --task shop.tasks.send_mail --state scheduled --dry-run
  {command} pause emails --tenant acme
  {command} drain emails --timeout 600   before a restart: nothing starts, wait for what runs
  {command} resume emails
  {command} obliterate emails            every job of it, for good; asks for its name
  {command} move --from emails --to slow --tenant acme   what waits goes on in another pool
  {command} erase acme --dry-run         all that is kept of a tenant's work
  {command} doctor                       is the store safe, are workers there, what is wrong? exit code 0, 1 or 2
  {command} fsck                         is every job where it must be? nothing is changed
  {command} fsck emails --repair         and put right what is proven to be wrong
  {command} schedules list
  {command} schedules next "nightly report" --count 10
  {command} schedules fire "nightly report"
  {command} sync --dry-run               what differs between the rows and what is in force
  {command} upgrade                      after a new release: convert the store
  {command} adopt                        take over a namespace that another database has claimed
"""

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(
            dest="verb",
            required=True,
            metavar=" | ".join([*LOOKING, "sync", "upgrade", "adopt", *extensions.verbs]),
        )

        for verb in dict.fromkeys(LOOKING.values()):
            verb.add_parser(verbs)
        _deploying(verbs)
        for path in dict.fromkeys(extensions.verbs.values()):
            import_module(path).add_parser(verbs)

    def perform(self, **options: Any) -> None:
        console = Console(self.stdout.write, lambda line: self.stderr.write(line, str))
        match options["verb"]:
            case verb if verb in LOOKING:
                text = LOOKING[verb].run(options, console)
            case "sync":
                text = sync(options["pools"], dry_run=options["dry_run"], json=options["json"])
            case "upgrade":
                text = upgrade(dry_run=options["dry_run"], say=self.stdout.write)
            case "adopt":
                text = adopt(confirm=lambda question: options["yes"] or console.confirm(question))
            case verb:
                text = import_module(extensions.verbs[verb]).run(options, console)
        if text:
            self.stdout.write(text)


def _deploying(verbs: Any) -> None:
    sync_parser = verbs.add_parser("sync", help="bring what the rows say into force now, and show what differed")
    sync_parser.add_argument("pools", nargs="*", metavar="POOL", help="default: every pool")
    sync_parser.add_argument("--dry-run", action="store_true", help="only compare, change nothing")
    json_option(sync_parser)

    upgrade_parser = verbs.add_parser("upgrade", help="convert the store to the schema of this release")
    upgrade_parser.add_argument("--dry-run", action="store_true", help="only say what would be converted")

    adopt_parser = verbs.add_parser("adopt", help="make the namespace this database's, whoever had it")
    adopt_parser.add_argument("--yes", action="store_true", help="do not ask")
