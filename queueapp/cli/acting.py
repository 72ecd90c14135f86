"""How a verb of the terminal acts on many jobs: count, ask, act with a bar, say what became of them.

Called by `cancel`, `move`, `dlq retry` and `dlq discard`; the work is `queueapp.inspection.bulk`. With `--yes` nobody
is asked, so that more jobs than were counted end the command; else it is asked for anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.management.base import CommandError

from queueapp.cli.console import Console
from queueapp.errors import CountChanged
from queueapp.inspection.actions import Done
from queueapp.inspection.bulk import Act
from queueapp.inspection.pools import all_pools, require
from queueapp.inspection.selection import Count, Selection, count
from queueapp.states import State

CONDITIONS = ("pool", "state", "tenant", "lane", "task", "group", "reason", "as_of", "everything")
"""Options of the verbs that choose jobs by what they have in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """What is done, in words, and to what."""

    name: str
    what: str
    """`dead letter`, `job`."""
    do: Act


def act_on_ids(verb: Verb, options: Mapping[str, Any], console: Console) -> str:
    """Exactly these jobs."""
    ids: Sequence[str] = options["ids"]
    asked = f"{verb.name} {_counted(len(ids), verb.what)}"
    refuse_conditions(options)
    if options["dry_run"]:
        return f"Would {asked}. Nothing was changed."
    if not (options["yes"] or console.confirm(f"{asked.capitalize()}?")):
        return "Nothing was changed."
    done = verb.do(ids, by=console.user, note=options["note"])
    if set(done.counts) == {"gone"}:
        raise CommandError(f"No job is called {', '.join(map(repr, ids))}; `ductor jobs` and `dlq list` show the ids.")
    return _said(done)


def act(verb: Verb, selections: Sequence[Selection], options: Mapping[str, Any], console: Console) -> str:
    """All that match, pool by pool, as they stood when it began."""
    counted = _count([selection.fixed() for selection in selections], console)
    if not counted:
        return f"No {verb.what} matches."
    total = sum(found.number for _, found in counted)
    asked = f"{verb.name} {_words(verb, counted)}"
    if options["dry_run"]:
        return f"Would {asked}. Nothing was changed."
    if not (options["yes"] or console.confirm(f"{asked[0].upper()}{asked[1:]}?")):
        return "Nothing was changed."
    done = Done()
    with console.bar(total, verb.what + "s") as bar:
        try:
            for selection, found in counted:
                before = done

                def told(so_far: Done, before: Done = before) -> None:
                    nonlocal done
                    done = before + so_far
                    bar.at(sum(done.counts.values()), done.summary())

                done = before + _one(verb, selection, found, options, console, told)
                if done.fault:
                    break
        except KeyboardInterrupt:
            raise CommandError(
                f"Interrupted: {done.summary()} The others are as they were; say the same again to go on."
            ) from None
    return _said(done)


def refuse_conditions(options: Mapping[str, Any]) -> None:
    """Ids say exactly which: a condition beside them would be believed and not looked at."""
    given = [name for name in CONDITIONS if options.get(name)]
    if given:
        words = ", ".join("--all" if name == "everything" else f"--{name.replace('_', '-')}" for name in given)
        raise CommandError(f"Ids and {words} exclude each other: say which jobs, or what they have in common.")


def _said(done: Done) -> str:
    """What became of them. Raises CommandError when it ended before its end: who goes on with && must not."""
    if done.fault:
        raise CommandError(done.summary())
    return done.summary() + (" More match now than were counted; say the same again for those." if done.more else "")


def _one(
    verb: Verb,
    selection: Selection,
    found: Count,
    options: Mapping[str, Any],
    console: Console,
    told: Callable[[Done], None],
) -> Done:
    expected = found.number if found.exact else None  # who said yes to “at least” said yes to more
    while True:
        try:
            return verb.do(selection, by=console.user, note=options["note"], expected=expected, progress=told)
        except CountChanged as error:
            if options["yes"]:
                raise
            if not console.confirm(f"{error} {verb.name.capitalize()} these {error.number:,} of {selection.pool}?"):
                return Done()
            expected = error.number if error.exact else None


def _count(selections: Sequence[Selection], console: Console) -> list[tuple[Selection, Count]]:
    found = [(selection, count(selection)) for selection in selections]
    return [(selection, counted) for selection, counted in found if counted.number or not counted.exact]


def _words(verb: Verb, counted: Sequence[tuple[Selection, Count]]) -> str:
    total = sum(found.number for _, found in counted)
    least = "" if all(found.exact for _, found in counted) else "at least "
    states: dict[str, int] = {}
    for _, found in counted:
        for state, number in found.by_state.items():
            states[state.value] = states.get(state.value, 0) + number
    parts = [f"{number:,} {state}" for state, number in states.items() if number]
    by_state = f" ({', '.join(parts)})" if list(states) != ["dead"] else ""
    return f"{least}{_counted(total, verb.what)} of {', '.join(selection.pool for selection, _ in counted)}{by_state}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def pools(named: str) -> list[str]:
    """The pool of this name, or every pool; refuses one that is not known."""
    known = all_pools()
    require([named] if named else [], known)
    return [named] if named else known


def states(named: Sequence[str], known: Sequence[State], what: str) -> tuple[State, ...]:
    """The states that were named, else all that are known to the verb. Refuses any other."""
    words = {state.value: state for state in known}
    for name in named:
        if name not in words:
            raise CommandError(f"{name!r} is no state {what}; there are {', '.join(words)}.")
    return tuple(words[name] for name in named) or tuple(known)


def asking_options(parser: Any) -> None:
    """`--dry-run`, `--note`, `--yes`."""
    parser.add_argument("--dry-run", action="store_true", help="only say how many there are")
    parser.add_argument("--note", default="", help="why; kept with who did it")
    parser.add_argument("--yes", action="store_true", help="do not ask")
