"""`manage.py ductor dlq list|groups|show|export|retry|discard`: dead letters from the terminal; `editing`: of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from django.core.management.base import CommandError

from queueapp.cli import acting, editing, job
from queueapp.cli.command import number, whole
from queueapp.cli.console import Console, json_option
from queueapp.cli.table import as_json, as_json_line, table
from queueapp.inspection import actions
from queueapp.inspection.bulk import RATE, STOP_AFTER, Redrive, discard_many, retry_many
from queueapp.inspection.deadletters import READ_TOGETHER, DeadLetters, dead_groups, dead_letters, every_dead_letter
from queueapp.inspection.facts import as_mapping
from queueapp.inspection.selection import Filter, Selection
from queueapp.states import State


def add_parser(verbs: Any) -> None:
    dlq = verbs.add_parser("dlq", help="dead letters")
    acts = dlq.add_subparsers(dest="action", required=True, metavar="list | groups | show | export | retry | discard")

    listed = acts.add_parser("list", help="newest first")
    _filter_options(listed)
    _page_options(listed, "dead letters")
    listed.add_argument(
        "--as-of", type=whole(0, 10**14), default=0, metavar="MS", help="as they were then: `as_of_ms` of another page"
    )
    json_option(listed)

    groups = acts.add_parser("groups", help="what died of the same: same task, same error at the same place")
    groups.add_argument("--pool", default="", help="only of this pool (default: every pool)")
    _page_options(groups, "groups")
    json_option(groups)

    job.add_parser(acts, "show", "one dead letter, with its traceback")

    export = acts.add_parser("export", help="as JSON, one line each, to the standard output")
    _filter_options(export)
    export.add_argument(
        "--payload", action="store_true", help="also arguments, messages and tracebacks, with MASK applied"
    )

    for verb, text in (("retry", "back to work, with fresh budgets"), ("discard", "away for good")):
        act = acts.add_parser(verb, help=text)
        act.add_argument("ids", nargs="*", metavar="ID", help="these, as `dlq list` shows them")
        _filter_options(act)
        act.add_argument("--lane", default="", help="only of this lane")
        act.add_argument("--all", dest="everything", action="store_true", help="all of the pool, or of every pool")
        act.add_argument(
            "--as-of",
            type=whole(0, 10**14),
            default=0,
            metavar="MS",
            help="only what died before; `list` says a moment",
        )
        acting.asking_options(act)
        if verb == "retry":
            _redrive_options(act)
            editing.add_options(act)


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end."""
    match options["action"]:
        case "list":
            return _listing(options)
        case "groups":
            return _groups(options)
        case "show":
            return job.run(options, console)
        case "export":
            return _export(options, console)
    return _act(options, console)


def _listing(options: Mapping[str, Any]) -> str:
    chosen = replace(_filter(options), as_of_ms=options["as_of"])
    pages = [
        dead_letters(pool, chosen, offset=options["offset"], count=options["count"])
        for pool in acting.pools(options["pool"])
    ]
    if options["json"]:
        return as_json(
            [
                {
                    "pool": page.pool,
                    "total": page.total,
                    "exact": page.exact,
                    "next_offset": page.next_offset,
                    "as_of_ms": page.as_of_ms,
                    "letters": [as_mapping(each, payload=False) for each in page.letters],
                }
                for page in pages
            ]
        )
    rows = [
        (
            letter.id,
            page.pool,
            letter.record.tenant,
            letter.record.task,
            letter.record.reason,
            letter.group,
            letter.record.error_count,
            letter.record.crashes,
            letter.ended_at,
        )
        for page in pages
        for letter in page.letters
    ]
    shown = table(("id", "pool", "tenant", "task", "reason", "group", "errors", "crashes", "died"), rows)
    further = [_further(page, several=len(pages) > 1) for page in pages if page.next_offset is not None]
    return "\n".join(filter(None, [shown, *further])) or "No dead letters."


def _further(page: DeadLetters, *, several: bool) -> str:
    total = page.total if page.exact else f"up to {page.total} that were looked through"
    pool = f"--pool {page.pool} " if several else ""
    return f"{len(page.letters)} of {total}; go on with {pool}--offset {page.next_offset} --as-of {page.as_of_ms}"


def _groups(options: Mapping[str, Any]) -> str:
    offset, count = options["offset"], options["count"]
    pages = {pool: dead_groups(pool, offset=offset, count=count) for pool in acting.pools(options["pool"])}
    found = [
        {
            "group": group.fingerprint,
            "pool": pool,
            "count": group.count,
            "task": group.sample.record.task,
            "reason": group.sample.record.reason,
            "error": group.sample.last_error.detail.get("class") if group.sample.last_error else None,
            "first_at": group.first_at,
            "last_at": group.last_at,
            "newest": group.sample.id,
        }
        for pool, (groups, _) in pages.items()
        for group in groups
    ]
    if options["json"]:
        return as_json(found)
    if not found:
        return "No dead letters."
    columns = ("group", "pool", "count", "task", "reason", "error", "first_at", "last_at")
    shown = [
        table(
            ("group", "pool", "letters", "task", "reason", "error", "first died", "last died"),
            [tuple(group[column] for column in columns) for group in found],
        )
    ]
    for pool, (groups, total) in pages.items():
        if offset + len(groups) < total:
            shown.append(f"{len(groups)} of {total} groups of {pool}; go on with --offset {offset + count}")
    return "\n".join(shown)


def _export(options: Mapping[str, Any], console: Console) -> str:
    chosen, progress = _filter(options), console.progress("exported")
    for pool in acting.pools(options["pool"]):
        batch = []
        for letter in every_dead_letter(pool, chosen):
            console.say(as_json_line(as_mapping(letter, payload=options["payload"])))
            batch.append(letter)
            if len(batch) == READ_TOGETHER:
                actions.record_export(batch, by=console.user)
                progress.add(len(batch))
                batch = []
        actions.record_export(batch, by=console.user)
    return ""


def _act(options: Mapping[str, Any], console: Console) -> str:
    """Retry or discard: these ids, or all that match and had died when it began."""
    verb = _verb(options)
    if editing.is_asked(options):
        return editing.run(options, console)
    if options["ids"]:
        return acting.act_on_ids(verb, options, console)
    conditions = {name: options[name] for name in ("tenant", "lane", "group", "reason")}
    tasks = (options["task"],) if options["task"] else ()
    if not (options["everything"] or tasks or any(conditions.values())):
        raise CommandError("Say which: ids, or --tenant, --lane, --group, --task, --reason, or --all.")
    selections = [
        Selection(pool=pool, states=(State.DEAD,), tasks=tasks, as_of_ms=options["as_of"], **conditions)
        for pool in acting.pools(options["pool"])
    ]
    return acting.act(verb, selections, options, console)


def _verb(options: Mapping[str, Any]) -> acting.Verb:
    if options["action"] == "discard":
        return acting.Verb(name="discard", what="dead letter", do=discard_many)
    redrive = Redrive(rate=options["rate"], stop_after=options["stop_after"])
    return acting.Verb(name="retry", what="dead letter", do=partial(retry_many, redrive=redrive))


def _filter(options: Mapping[str, Any]) -> Filter:
    tasks = (options["task"],) if options["task"] else ()
    return Filter(tasks=tasks, **{name: options[name] for name in ("tenant", "group", "reason")})


def _filter_options(parser: Any) -> None:
    parser.add_argument("--pool", default="", help="only of this pool (default: every pool)")
    parser.add_argument("--tenant", default="", help="only of this tenant")
    parser.add_argument("--group", default="", help="only of this group, as `dlq groups` shows it")
    parser.add_argument("--task", default="", help="only of this task (its dotted name)")
    parser.add_argument("--reason", default="", help="only with this reason: error, worker_lost, unknown_task, …")


def _redrive_options(parser: Any) -> None:
    parser.add_argument(
        "--rate",
        type=number(0, 1e6),
        metavar="N",
        help=f"so many a second, 0 = as fast as it goes (default: {RATE:g}; of ids: 0)",
    )
    parser.add_argument(
        "--stop-after",
        type=number(0, 1e9),
        metavar="N",
        help=f"stop when this share (below 1) or number died again, 0 = never (default: {STOP_AFTER:g}; of ids: 0)",
    )


def _page_options(parser: Any, what: str) -> None:
    parser.add_argument(
        "--offset", type=whole(0, 10**9), default=0, metavar="N", help=f"leave out the newest N {what} of each pool"
    )
    parser.add_argument(
        "--count",
        type=whole(1, 1000),
        default=50,
        metavar="N",
        help=f"at most N {what} of each pool (default: 50)",
    )
