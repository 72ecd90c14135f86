"""A transition as a library of server functions: nothing but definitions outlives a call, and no text is lost."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator

import pytest
import redis

from queueapp.store import scripts
from queueapp.store.libraries import CLOSES, LOCAL, OPENS, PLAIN, TABLE, TOKEN, library, statements, without_comments

NAMES = scripts.names()
INCLUDES = re.compile(r'^--- @include "[a-z_]+"\n', re.MULTILINE)
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
    "a table of constants": ("local WORDS = {'a', b = 'c'}", "return #WORDS + #WORDS.b", 2),
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


def declarations(text: str) -> Iterator[tuple[list[str], str]]:
    """Names and value of each declaration of the chunk and its blocks."""
    for statement in statements(text):
        if re.match(r"do\s", statement):
            yield from declarations(textwrap.dedent(statement[2:-3].strip("\n")))
        elif not re.match(r"(?:local )?function\b", statement) and (match := LOCAL.match(statement)) is not None:
            yield re.split(r"[\s,]+", match[1].strip()), match[2] or ""


def variables(text: str) -> Iterator[tuple[str, str, str]]:
    """Each name that stands for a variable, no field, method or key; with the token before it, or before the list of
    names that it stands in; and with what follows."""
    tokens = [match for match in TOKEN.finditer(text) if match["space"] is None and match["comment"] is None]
    words = [match[0] for match in tokens]
    open_: list[str] = []
    for at, match in enumerate(tokens):
        before, after = words[at - 1] if at else "", words[at + 1] if at + 1 < len(words) else ""
        if match["word"] is not None and before not in (".", ":"):
            inside = bool(open_) and open_[-1] == "{"
            if not (inside and after == "=" and before in ("{", ",", ";")):
                first = at
                while words[first - 1] == "," and first > 1:
                    first -= 2
                beyond = "" if inside else " ".join(words[at + 1 : at + 20])
                yield match[0], words[first - 1] if first else "", beyond
        if match["text"] is None and match[0] in OPENS:
            open_.append(match[0])
        elif match["text"] is None and match[0] in CLOSES:
            open_.pop()


def set_again(text: str) -> set[str]:
    """Names in capitals with a plain value, which are made once, at the load, and yet set somewhere."""
    constants = {
        names[0]
        for names, value in declarations(text)
        if len(names) == 1 and names[0].isupper() and (PLAIN.fullmatch(value) or TABLE.fullmatch(value))
    }
    return {
        name
        for name, before, rest in variables(text)
        if name in constants and before not in ("local", "for", "function") and re.match(r"(?:, \w+ )*=(?!=)", rest)
    }


def of_itself(text: str) -> set[str]:
    """Names whose value, at their declaration, speaks of an older variable of this name (`local x = f(x)`): a library
    declares first and sets in each call, so that it would be the new one there."""
    return {
        name for names, value in declarations(text) for name in names if name in {word for word, *_ in variables(value)}
    }


@pytest.mark.parametrize("name", NAMES)
def test_constants_are_not_set_again(name: str) -> None:
    assert set_again(whole(name)) == set()


@pytest.mark.parametrize("name", NAMES)
def test_no_declaration_speaks_of_an_older_variable_of_its_name(name: str) -> None:
    assert of_itself(whole(name)) == set()


SETS = ["MOST = 2", "if x then MOST = 2 end", "a, MOST = 1, 2", "MOST, a = 1, 2", "x(function() MOST = 3 end)"]
SETS += ["do\n  MOST = 2\nend", "function f()\n  for i = 1, 2 do MOST = i end\nend"]


@pytest.mark.parametrize("again", SETS)
@pytest.mark.parametrize("constant", ["local MOST = 1", "local MOST = true", "do\nlocal MOST = 'a'\nend"])
def test_whatever_sets_a_constant_is_seen(constant: str, again: str) -> None:
    assert set_again(f"{constant}\n{again}") == {"MOST"}


def put_into(text: str) -> set[str]:
    """Constants that are tables, which are made once, at the load, and yet are changed somewhere, or may be: they are
    handed on."""
    tables = {
        names[0]
        for names, value in declarations(text)
        if len(names) == 1 and names[0].isupper() and TABLE.fullmatch(value)
    }
    read = {"ipairs (", "pairs (", "unpack ("}
    found = set()
    for name, _, rest in variables(text):
        if name in tables and re.match(r"(?:\. \w+|\[ [^\]]* \]) =(?!=)", rest):
            found.add(name)
    words = " ".join(match[0] for match in TOKEN.finditer(text) if match["space"] is None and match["comment"] is None)
    for name in tables:
        for match in re.finditer(rf"(\w+ \(|[,=(]) {name}(?! [.\[])\b", words):
            if match[1] not in read:
                found.add(name)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_put_into_a_table_of_constants(name: str) -> None:
    """In its includes: what the script's own lines make, they make in each call."""
    assert (
        put_into(without_comments(scripts.expand("\n".join(INCLUDES.findall(scripts.source(f"{name}.lua")))))) == set()
    )


@pytest.mark.parametrize(
    "change", ["LIST.x = 1", "LIST[1] = 1", "push(LIST, 1)", "local a = LIST", "f(1, LIST)", "do\n  LIST[a] = 2\nend"]
)
def test_whatever_changes_such_a_table_is_seen(change: str) -> None:
    assert put_into(f"local LIST = {{1, x = 'a'}}\n{change}") == {"LIST"}


@pytest.mark.parametrize(
    "use", ["local a = LIST[1]", "if LIST.x == 1 then a = 1 end", "for _, x in ipairs(LIST) do end"]
)
def test_what_only_reads_it_is_left_alone(use: str) -> None:
    assert put_into(f"local LIST = {{1, x = 'a'}}\n{use}") == set()


FITS = ["local a = MOST", "if MOST == 2 then a = 1 end", "f({MOST = 2})", "x.MOST = 2", "for MOST = 1, 2 do end"]


@pytest.mark.parametrize("use", [*FITS, "f(MOST)", "local t = {f, MOST = 2}", "local LIST = {}\nLIST = 1"])
def test_what_sets_none_is_left_alone(use: str) -> None:
    assert set_again(f"local MOST = 1\n{use}") == set()


OLDER = ["local x = f(x)", "local x = x or {}", "local y, x = x, 1", "local x = {x}", "local x = {a = x.y}"]
OLDER += ["local x = function() return x end", "do\n  local x = g(1, x)\nend", "local x = a[x]", "local x = a.b .. x"]


@pytest.mark.parametrize("text", OLDER)
def test_whatever_speaks_of_an_older_one_is_seen(text: str) -> None:
    assert of_itself(f"local x = 1\n{text}") == {"x"}


@pytest.mark.parametrize("text", ["local x = {x = 1}", "local x = a.x", "local x = 'x'", "local x = a:x()", "local x"])
def test_what_speaks_of_none_is_left_alone(text: str) -> None:
    assert of_itself(text) == set()


def test_a_library_would_take_the_new_one(call: Called) -> None:
    """Why it is not allowed: as a script, this is 2."""
    assert call("local y = 0\nlocal x = 1\ndo\nlocal x = (x or 5) + 1\ny = x\nend", "return y", 1) == [6]


def twice(text: str) -> set[str]:
    """Names that one chunk or block declares twice: in a library, what was defined in between never sees the first."""
    seen: list[str] = []
    found: set[str] = set()
    for statement in statements(text):
        if re.match(r"do\s", statement):
            found |= twice(textwrap.dedent(statement[2:-3].strip("\n")))
        elif (match := re.match(r"local function (\w+)", statement)) is not None:
            seen.append(match[1])
        elif (match := LOCAL.match(statement)) is not None:
            seen += re.split(r"[\s,]+", match[1].strip())
    return found | {name for name in seen if seen.count(name) > 1}


@pytest.mark.parametrize("name", NAMES)
def test_no_block_declares_a_name_twice(name: str) -> None:
    assert twice(whole(name)) == set()


TWICE = ["local x = 1\nlocal x = 2", "local x, y\nlocal z, x = 1, 2", "local x\nlocal function x() end"]


@pytest.mark.parametrize("text", [*TWICE, "do\n  local x = 1\n  local x = 2\nend"])
def test_whatever_declares_one_twice_is_seen(text: str) -> None:
    assert twice(text) == {"x"}
    assert twice("local x = 1\ndo\n  local x = 2\nend") == set()


def test_what_was_defined_in_between_would_not_see_the_first(call: Called) -> None:
    """Why it is not allowed: as a script, this is 1."""
    text = "local x = 1\nlocal function first() return x or 7 end\nlocal x = 2"
    assert call(text, "return first()", 1) == [7]


def test_no_two_texts_share_a_name() -> None:
    assert len({scripts.script(name).function for name in NAMES}) == len(NAMES)
