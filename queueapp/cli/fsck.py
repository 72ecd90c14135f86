"""`manage.py ductor fsck [POOL …] [--repair]`: recounts pools while they work, and puts right what it can prove."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from queueapp.cli.console import Console, json_option
from queueapp.cli.table import as_json, printable, prose, table
from queueapp.inspection import fsck
from queueapp.inspection.fsck import Checked
from queueapp.inspection.pools import all_pools, require
from queueapp.sync import installation

SHOWN = 100
"""Findings of a pool that the text has; `--json` has all."""
WORDS = {"mendable": "can be mended", "mended": "mended", "by_hand": "by hand"}


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser(
        "fsck",
        help="recount pools while they work; --repair puts right what it can prove",
        description="Recounts every invariant of pools while they work, in steps of a few milliseconds. Ends with 1 "
        "when something is wrong, or is left after --repair.",
    )
    parser.add_argument("pools", nargs="*", metavar="POOL", help="default: every pool")
    parser.add_argument("--repair", action="store_true", help="put right what is proven to be wrong")
    json_option(parser)


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end. Raises UnknownPool; when something is wrong, CommandError after printing."""
    known, repair = all_pools(), options["repair"]
    require(options["pools"], known)
    if repair:
        installation.claim()
    found = []
    for pool in options["pools"] or known:
        shown = console.progress(f"keys of {pool} looked at")

        def told(_: str, number: int, shown: Any = shown) -> None:
            shown.add(max(0, number - shown.count))

        found.append(fsck.check(pool, repair=repair, progress=told))
    if options["json"]:
        text = as_json([{**asdict(checked), "well": checked.well, "repair": repair} for checked in found])
    else:
        text = "\n\n".join("\n".join(_lines(checked)) for checked in found)
    ill = [checked.pool for checked in found if not checked.well]
    if not ill:
        return text
    console.say(text)
    more = "left" if repair else "wrong; `--repair` mends what can be mended"
    raise CommandError(f"{', '.join(ill)}: something is {more}.")


def _lines(checked: Checked) -> Iterator[str]:
    findings = checked.findings
    if not findings:
        yield f"{checked.pool}: {checked.looked_at:,} keys looked at, all is well"
        return
    counted = Counter(finding.state for finding in findings)
    parts = [f"{counted[state]:,} {word}" for state, word in WORDS.items() if counted[state]]
    yield f"{checked.pool}: {checked.looked_at:,} keys looked at, {', '.join(parts)}"
    rows = [(WORDS[one.state], one.kind, one.name, one.what) for one in findings[:SHOWN]]
    yield table(("", "kind", "of", "what is wrong"), rows, wraps=True)
    if len(findings) > SHOWN:
        yield f"… and {len(findings) - SHOWN:,} more; --json has all"
    yield from _remedies(checked)
    if not checked.settled:
        yield prose("Some of it came again while it was mended: say the same once more, and look for who writes there.")


def _remedies(checked: Checked) -> Sequence[str]:
    told = {finding.kind: finding.remedy for finding in checked.findings if finding.remedy}
    return [prose(f"{kind}: {printable(remedy)}") for kind, remedy in told.items()]
