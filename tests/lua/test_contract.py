"""The header of every script is a contract: with its body, with `Store`, with the refusals and with the transitions."""

from __future__ import annotations

import inspect
import re
from importlib import resources

import pytest

from queueapp.errors import REFUSALS
from queueapp.states import TRANSITIONS
from queueapp.store import scripts
from queueapp.store.keys import GLOSSARY, IN_LINE
from queueapp.store.store import Store

NAMES = scripts.names()
LUA = resources.files("queueapp.store").joinpath("lua")
INCLUDES = sorted(entry.name.removesuffix(".lua") for entry in LUA.joinpath("include").iterdir())
METHODS = {"await": "await_result", "lead": "lead_acquire"}


def body(name: str) -> str:
    return scripts.expand(scripts.source(f"{name}.lua"))


@pytest.mark.parametrize("path", [f"{name}.lua" for name in NAMES] + [f"include/{name}.lua" for name in INCLUDES])
def test_lines_fit_the_page(path: str) -> None:
    # A row of a group stands in one line of the contract, however long.
    lines = [line for line in scripts.source(path).splitlines() if not line.startswith("-- Groups:")]
    assert [line for line in lines if len(line) > 120] == []


@pytest.mark.parametrize("name", NAMES)
def test_refusals_are_those_of_the_body_and_have_an_exception(name: str) -> None:
    returned = set(re.findall(r"return \{0, '([a-z_]+)'", body(name)))
    assert returned == scripts.script(name).refusals
    assert returned <= REFUSALS.keys()


@pytest.mark.parametrize("name", NAMES)
def test_every_argument_is_named_and_none_beyond_is_read(name: str) -> None:
    script = scripts.script(name)
    read = [int(position) for position in re.findall(r"ARGV\[(\d+)\]", body(name))]
    named = 2 + len(script.arguments) + len(script.groups)
    assert max(read) <= named
    first_row = re.search(r"next_argument = (\d+)\n", scripts.source(f"{name}.lua"))
    assert (int(first_row.group(1)) if first_row else 0) == (named + 1 if script.groups else 0)


@pytest.mark.parametrize("name", NAMES)
def test_widths_of_groups_are_those_of_the_contract(name: str) -> None:
    script = scripts.script(name)
    widths = [int(width) for width in re.findall(r"next_group\(tonumber\(ARGV\[\d+\]\), (\d+)\)", body(name))]
    if name != "enqueue":
        assert widths == [len(fields) for fields in script.groups.values()]


OPENS = re.compile(r"(do|if|for|while|function|local function|local \w+ = function)\b")


def names_outside_of_blocks(text: str) -> list[str]:
    """The local names of a script at its top level. What is private to an include stands in `do … end`, unindented."""
    open_blocks: list[str] = []
    found: list[str] = []
    for line in re.sub(r" *--.*", "", text).splitlines():
        if line.startswith("end"):
            open_blocks.pop()
            continue
        named = re.match(r"local (?:function )?([\w, ]+)", line)
        if named and "do" not in open_blocks:
            found += named.group(1).split(",")
        if OPENS.match(line) and not re.search(r"\bend$", line):
            open_blocks.append(line.split()[0])
    assert open_blocks == []
    return found


@pytest.mark.parametrize("name", NAMES)
def test_no_script_comes_near_the_200_local_names_that_lua_allows(name: str) -> None:
    assert len(names_outside_of_blocks(body(name))) <= 190


@pytest.mark.parametrize("name", NAMES)
def test_the_store_has_a_method_of_the_same_name(name: str) -> None:
    method = getattr(Store, METHODS.get(name, name))
    assert inspect.getdoc(method)


@pytest.mark.parametrize("name", NAMES)
def test_shebang_says_what_the_server_may_do_at_maxmemory(name: str) -> None:
    flags = scripts.source(f"{name}.lua").splitlines()[0].removeprefix("#!lua").strip().removeprefix("flags=")
    adds = {"admit", "arrive", "backlog_promote", "enqueue", "flush_policy", "promote_due", "retry_from_dlq", "rewrite"}
    adds |= {"match", "save", "enqueue_flow", "add_children"}
    reads = {"browse", "came", "departed", "explain", "mirror", "oldest", "peek", "verify"}
    assert flags == ("no-writes" if name in reads else "" if name in adds else "allow-oom")


def test_no_script_scans_the_keyspace_but_verify_and_those_that_empty_it() -> None:
    scanning = {name for name in NAMES if re.search(r"redis\.p?call\('(KEYS|SCAN|RANDOMKEY)'", body(name))}
    assert scanning == {"verify", "obliterate", "erase_traces"}


def test_every_transition_is_a_script_and_stands_in_its_title() -> None:
    for transition in TRANSITIONS:
        title = body(transition.script).splitlines()[1]
        assert transition.target.value in title, transition
        if transition.source is not None:
            assert transition.source.value in title, transition


@pytest.mark.parametrize("name", NAMES)
def test_who_takes_waiting_jobs_out_can_take_them_out_of_ready(name: str) -> None:
    """`leave_ready` is declared where it is called (move.lua) and defined with the rest of ready: without both a script
    would fail for a job in ready only."""
    text = re.sub(r" *--.*", "", body(name))
    if re.search(r"(?<!function )leave_waiting\(", text):
        assert "function leave_ready(" in text


def test_each_include_stands_once_and_includes_are_all_used() -> None:
    paths = [f"{name}.lua" for name in NAMES] + [f"include/{name}.lua" for name in INCLUDES]
    used = {include for path in paths for include in scripts.INCLUDE.findall(scripts.source(path))}
    folder = resources.files("queueapp.store").joinpath("lua", "include")
    assert used == {entry.name.removesuffix(".lua") for entry in folder.iterdir()}
    assert scripts.expand('--- @include "clock"\n--- @include "clock"\n').count("local now") == 1


def test_wrong_names_are_refused_before_the_server_sees_them() -> None:
    script = scripts.script("check_and_lease")
    with pytest.raises(TypeError, match="takes"):
        script.argv(0, {"worker": "w"}, {})
    with pytest.raises(TypeError, match="row of leases"):
        scripts.script("extend_lease").argv(0, {"lease_ms": 1}, {"leases": [("only-an-id",)]})


def test_every_key_that_the_lua_spells_is_in_the_glossary() -> None:
    prefixes = {re.split(r"[<:]", key)[0] for key in GLOSSARY}
    spelt = set()
    for name in NAMES:
        for literal in re.findall(r"\b[PWO] \.\. '([a-z]+)", body(name)):
            spelt.add(literal)
    assert spelt <= prefixes


@pytest.mark.parametrize("name", NAMES)
def test_names_of_the_waiting_work_follow_its_generation(name: str) -> None:
    assert set(re.findall(r"\b[WO] \.\. '([a-z]+)", body(name))) <= IN_LINE
    assert not set(re.findall(r"\bP \.\. '([a-z]+)", body(name))) & IN_LINE


def test_every_key_of_the_glossary_is_known_to_verify() -> None:
    audit = scripts.source("include/audit.lua")
    for key in GLOSSARY:
        name = key.split("<")[0].rstrip(":")
        assert re.search(rf"\b{re.escape(name.split(':')[0])}\b", audit), key
