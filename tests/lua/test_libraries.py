"""A transition as a library of server functions: nothing but definitions outlives a call, and no text is lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
import redis

from queueapp.store import scripts
from queueapp.store.libraries import library, statements, without_comments

NAMES = scripts.names()
Called = Callable[..., list[object]]


@pytest.fixture
def call(redis_client: redis.Redis) -> Iterator[Called]:
    """Loads a library of this text and body, and calls it as often as is asked; its answers."""

    def called(text: str, body: str, times: int = 2, *argv: str) -> list[object]:
        redis_client.function_load(library("test_libraries", text, body, []), replace=True)
        return [redis_client.fcall("test_libraries", 1, "{a}:", *argv) for _ in range(times)]

    yield called
    redis_client.function_delete("test_libraries")


CASES: dict[str, tuple[str, str, int]] = {
    "a number": ("local n = 0\nlocal function more()\n  n = n + 1\nend", "more()\nreturn n", 1),
    "a table": ("local list = {}", "list[#list + 1] = 1\nreturn #list", 1),
    "no value": ("local found\nlocal function set() found = 1 end", "local was = found\nset()\nreturn was or 0", 0),
    "two at once": ("local a, b = {}, 5", "a[#a + 1] = 1\nb = b + 1\nreturn #a + b", 7),
    "a table with a method": (
        "local t = {list = {}}\nfunction t.add() t.list[#t.list + 1] = 1 end",
        "t.add()\nreturn #t.list",
        1,
    ),
    "a field that was put in": ("local t = {}\nfunction t.put() t.x = (t.x or 0) + 1 end", "t.put()\nreturn t.x", 1),
    "a function that was put in": (
        "local t = {}\nfunction t.f() end",
        "local was = t.late\nt.late = function() end\nreturn was and 1 or 0",
        0,
    ),
    "within a block": (
        "local f\ndo\nlocal n = 0\nfunction f()\n  n = n + 1\n  return n\nend\nend",
        "return f()",
        1,
    ),
    "an indented block": ("local f\ndo\n  local n = 0\n  f = function() n = n + 1; return n end\nend", "return f()", 1),
    "constants": ("local MOST = 7\nlocal WORDS = 'a ' .. 'b'", "return MOST + #WORDS", 10),
    "a loop": ("local seen = 0\nfor i = 1, 3 do\n  seen = seen + i\nend", "return seen", 6),
    "comments": ("-- local n = 1\nlocal n = 2 -- '--\nlocal s = '-- no comment'", "return n + #s", 15),
}


@pytest.mark.parametrize("case", CASES)
def test_each_call_begins_anew(call: Called, case: str) -> None:
    text, body, want = CASES[case]
    assert call(text, body) == [want, want]


def test_a_refusal_before_the_body_ends_the_call(call: Called) -> None:
    text = "do\n  local given = ARGV[1]\n  if given == 'no' then\n    return {0, 'refused'}\n  end\nend"
    assert call(text, "return {1}", 1, "no") == [[0, b"refused"]]
    assert call(text, "return {1}", 1, "yes") == [[1]]


def test_a_failed_call_leaves_nothing_for_the_next(redis_client: redis.Redis, call: Called) -> None:
    text = "local n = 0"
    assert call(text, "n = n + 1\nif ARGV[1] == 'fail' then error('x') end\nreturn n", 1) == [1]
    with pytest.raises(redis.ResponseError):
        redis_client.fcall("test_libraries", 1, "{a}:", "fail")
    assert redis_client.fcall("test_libraries", 1, "{a}:") == 1


def whole(name: str) -> str:
    """The text of a script without its shebang."""
    return without_comments(scripts.expand(scripts.source(f"{name}.lua")).partition("\n")[2])


@pytest.mark.parametrize("name", NAMES)
def test_no_text_is_lost(name: str) -> None:
    """Each statement begins in column 0 of its block, so that the parts are the whole."""
    clean = whole(name)
    assert "\n".join(statements(clean)) == clean


@pytest.mark.parametrize("name", NAMES)
def test_constants_are_not_set_again(name: str) -> None:
    """A name in capitals with a plain value is made once, at the load."""
    clean = whole(name)
    constants = set(re.findall(r"""^local ([A-Z_]+) = (?:['"\d-])""", clean, re.MULTILINE))
    for constant in constants:
        assert not re.search(rf"^\s*{constant} =[^=]", clean, re.MULTILINE), constant


def test_no_two_texts_share_a_name() -> None:
    assert len({scripts.script(name).function for name in NAMES}) == len(NAMES)
