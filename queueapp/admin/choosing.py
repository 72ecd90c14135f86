"""Which jobs a form means: those that were ticked, those of the page, or all that match a filter.

An address that only shows something may say anything: what is no value of a field is none. A form that acts may not:
a field or a value that nobody knows, left out, would make it act on more than was meant, so it is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args
from urllib.parse import urlencode

from django.http import HttpRequest, QueryDict
from django.utils.translation import gettext

from queueapp.errors import InvalidOption
from queueapp.inspection.bulk import MOST_OF_REQUEST
from queueapp.inspection.selection import READS_OF_REQUEST, Filter, Selection, count
from queueapp.states import State

MOST = MOST_OF_REQUEST
PAGE_SIZES = (50, 100, 200)
OFFSET_MOST = 10_000_000
WORD_MOST = 512

Scope = Literal["ticked", "page", "all"]
LISTS = frozenset({"ids", "page_ids"})
OF_FORMS = frozenset({"csrfmiddlewaretoken", "confirmed", "next", "typed"})
KNOWN = (
    OF_FORMS
    | LISTS
    | {
        *("scope", "shown", "least", "note", "per"),
        *("pool", "state", "tenant", "lane", "task", "reason", "group", "before", "submission"),
    }
)
"""The fields of a form that acts on jobs."""


def read_filter(given: QueryDict) -> Filter:
    """The filter of a page's address or a form; whatever is no value of a field is none."""
    return Filter(
        tenant=word(given, "tenant"),
        tasks=(task,) if (task := word(given, "task")) else (),
        reason=word(given, "reason"),
        group=word(given, "group"),
        as_of_ms=number(given, "before", most=2**53),
    )


def refuse_unknown(posted: QueryDict, known: frozenset[str]) -> None:
    """Raises InvalidOption for a field that there is not, and for one that stands there twice with two values."""
    for name, values in posted.lists():
        if name not in known:
            raise InvalidOption(
                gettext("The form has a field “%(name)s”, which nobody knows. Nothing was changed.")
                % {"name": name[:60]}
            )
        if name not in LISTS and len(set(values)) > 1:
            raise InvalidOption(
                gettext("The form has the field “%(name)s” twice. Nothing was changed.") % {"name": name}
            )


def posted_word(posted: QueryDict, name: str) -> str:
    """The text of a form that acts. Raises InvalidOption for one that `word` would change into another."""
    text, found = posted.get(name, ""), word(posted, name)
    if found != text.strip() or (text and not found):
        raise _refused(name, text)
    return found


def _refused(name: str, text: str) -> InvalidOption:
    return InvalidOption(
        gettext("%(name)s is “%(value)s”: there is no such one. Nothing was changed.")
        % {"name": name, "value": text[:60]}
    )


def filter_parameters(pool: str, chosen: Filter) -> dict[str, str]:
    """The filter as parameters that `read_filter` reads, `pool` first; empty ones are left out."""
    fields = {name: getattr(chosen, name) for name in ("tenant", "lane", "task", "reason", "group")}
    before = str(chosen.as_of_ms) if chosen.as_of_ms else ""
    return {name: value for name, value in {"pool": pool, **fields, "before": before}.items() if value}


def address(base: str, parameters: Mapping[str, object]) -> str:
    """`base` with a query of the parameters that have a value."""
    query = urlencode({name: value for name, value in parameters.items() if value})
    return f"{base}?{query}" if query else base


def word(given: QueryDict, name: str) -> str:
    return "".join(sign for sign in given.get(name, "").strip() if sign >= " ")[:WORD_MOST]


def number(given: QueryDict, name: str, *, most: int, default: int = 0) -> int:
    """A whole number from 0 to `most`; anything else is the default."""
    text = given.get(name, "")
    return min(int(text), most) if text.isascii() and text.isdigit() and len(text) < 20 else default


def page_size(given: QueryDict) -> int:
    """How many rows a page has: one of `PAGE_SIZES`."""
    asked = number(given, "per", most=max(PAGE_SIZES))
    return asked if asked in PAGE_SIZES else PAGE_SIZES[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What a form means in one pool: public ids, at most `MOST`, or all that match."""

    pool: str
    ids: tuple[str, ...] = ()
    selection: Selection | None = None
    """None: the ids are meant."""
    surplus: int = 0
    """Ids beyond `MOST` that the form named; they are left alone."""

    @property
    def everything(self) -> bool:
        return self.selection is not None

    @property
    def none(self) -> bool:
        """Nothing was chosen."""
        return self.selection is None and not self.ids

    @property
    def asked(self) -> Selection | tuple[str, ...]:
        """What an action of `inspection.bulk` takes."""
        return self.ids if self.selection is None else self.selection

    def fixed(self) -> Chosen:
        """The same with the moment as of which all that match are meant. Asks the store."""
        return self if self.selection is None else replace(self, selection=self.selection.fixed())

    def count(self) -> tuple[int, bool]:
        """How many jobs match, and whether that is exact. Asks the store when all that match are meant."""
        if self.selection is None:
            return len(self.ids), True
        found = count(self.selection, reads=READS_OF_REQUEST)
        return found.number, found.exact


def read_chosen(request: HttpRequest, pool: str, states: tuple[State, ...]) -> Chosen:
    """What a posted form means: `scope`, `ids` (ticked) and `page_ids`, several in a field or one in each. `states` are
    those of which all that match may be meant; the form may name one of them.

    Conditions are looked at only where all that match are meant. Raises InvalidOption for what nobody knows.
    """
    posted = request.POST
    refuse_unknown(posted, KNOWN)
    scope = posted.get("scope", "ticked")
    if scope not in get_args(Scope):
        raise _refused("scope", scope)
    if scope != "all":
        fields = posted.getlist("page_ids" if scope == "page" else "ids")
        ids = _distinct(part for field in fields for part in field.split())
        return Chosen(pool=pool, ids=ids[:MOST], surplus=max(0, len(ids) - MOST))
    state, before, text = posted_word(posted, "state"), number(posted, "before", most=2**53), posted.get("before", "")
    if state and state not in states:
        raise _refused("state", state)
    if text and not before:
        raise _refused("before", text)
    tenant, lane, task, reason, group = (
        posted_word(posted, name) for name in ("tenant", "lane", "task", "reason", "group")
    )
    return Chosen(
        pool=pool,
        selection=Selection(
            pool=pool,
            states=(State(state),) if state else states,
            tenant=tenant,
            lane=lane,
            tasks=(task,) if task else (),
            reason=reason,
            group=group,
            as_of_ms=before,
            submission=number(posted, "submission", most=2**53) if before else 0,
        ),
    )


def _distinct(ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(ids))
