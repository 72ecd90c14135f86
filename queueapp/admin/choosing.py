"""Which jobs a form means: those that were ticked, those of the page, or all dead letters that match a filter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Literal, cast, get_args
from urllib.parse import urlencode

from django.http import HttpRequest, QueryDict

from queueapp.inspection.deadletters import Filter
from queueapp.inspection.selection import PAGES_OF_REQUEST, Selection, count
from queueapp.states import State

MOST = 1_000
"""Jobs that one request acts on."""
PAGE_SIZES = (50, 100, 200)
OFFSET_MOST = 10_000_000
WORD_MOST = 512

Scope = Literal["ticked", "page", "all"]


def read_filter(given: QueryDict) -> Filter:
    """The filter of a page's address or a form; whatever is no value of a field is none."""
    return Filter(
        tenant=word(given, "tenant"),
        task=word(given, "task"),
        reason=word(given, "reason"),
        group=word(given, "group"),
        before_ms=number(given, "before", most=2**53),
    )


def filter_parameters(pool: str, chosen: Filter) -> dict[str, str]:
    """The filter as parameters that `read_filter` reads, `pool` first; empty ones are left out."""
    fields = {name: value for name, value in asdict(chosen).items() if name != "before_ms"}
    before = str(chosen.before_ms) if chosen.before_ms else ""
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
    """What a form means in one pool. `ids` are public ids, at most `MOST`; unused when all that match are meant."""

    pool: str
    scope: Scope
    ids: tuple[str, ...]
    selection: Selection
    filter: Filter
    surplus: int = 0
    """Ids beyond `MOST` that the form named; they are left alone."""

    @property
    def everything(self) -> bool:
        return self.scope == "all"

    @property
    def asked(self) -> Selection | tuple[str, ...]:
        """What an action of `inspection.bulk` takes."""
        return self.selection if self.everything else self.ids

    def count(self) -> tuple[int, bool]:
        """How many jobs match, and whether that is exact. Asks the store when all that match are meant."""
        if not self.everything:
            return len(self.ids), True
        found = count(self.selection, pages=PAGES_OF_REQUEST)
        return found.number, found.exact


def read_chosen(request: HttpRequest, pool: str, states: tuple[State, ...]) -> Chosen:
    """What a posted form means: `scope`, `ids` (ticked) and `page_ids`, several in a field or one in each. `states` are
    those of which all that match may be meant; the form may name one of them.
    """
    given = request.POST.get("scope", "ticked")
    scope = cast("Scope", given) if given in get_args(Scope) else "ticked"
    fields = request.POST.getlist("page_ids" if scope == "page" else "ids")
    ids = _distinct(part for field in fields for part in field.split())
    filter, state = read_filter(request.POST), word(request.POST, "state")
    return Chosen(
        pool=pool,
        scope=scope,
        ids=ids[:MOST],
        selection=Selection(
            pool=pool,
            states=(State(state),) if state in states else states,
            tenant=filter.tenant,
            lane=word(request.POST, "lane"),
            tasks=(filter.task,) if filter.task else (),
            reason=filter.reason,
            group=filter.group,
            as_of_ms=filter.before_ms,
        ),
        filter=filter,
        surplus=max(0, len(ids) - MOST),
    )


def _distinct(ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(ids))
