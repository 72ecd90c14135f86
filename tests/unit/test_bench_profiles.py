"""Profiles: those of the package say what they are for, and every field of one's own is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from queueapp.bench import profiles
from queueapp.bench.failures import Failures
from queueapp.bench.profiles import NAMES, InvalidProfile, Run, load
from queueapp.bench.workloads import KINDS, Shape
from queueapp.bench.workloads.shape import Bursts, Churn, Deadlines, Durations, HeavyTail
from queueapp.policies.room import Limits

WHOLE = """
[run]
jobs = 10
slots = 2
repetitions = 3
seed = 4
execution = "cpu"
starving_ms = 6
[arrivals]
rate_per_s = 7.5
[arrivals.bursts]
base_per_s = 0
peak_per_s = 8
length_ms = 9
period_ms = 10
[durations]
least_ms = 11
most_ms = 12
[heavy_tail]
least_ms = 13
most_ms = 14
alpha = 1.5
[priorities]
weights = [16, 0, 17]
[deadlines]
base_ms = 18
multiplier = 19
jitter_ms = 20
[lanes]
main = 21
mail = 22
[tenants.even]
ant = 23
[tenants.skewed]
bee = 24
cat = 1
[tenants.factors]
dog = 25
[tenants.churn]
active = 26
stay_ms = 27
[failures]
failing = 0.25
lost = 0.5
attempts = 28
backoff_ms = 29
lease_ms = 30
[limits.ant]
weight = 31
[limits.bee]
ceiling = 32
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "own.toml"


def test_every_field_is_set_by_its_own_line(own: Path) -> None:
    own.write_text(WHOLE)
    found = load(str(own))
    assert found.run == Run(jobs=10, slots=2, repetitions=3, seed=4, execution="cpu", starving_ms=6)
    assert found.shape == Shape(
        rate_per_s=7.5,
        bursts=Bursts(base_per_s=0.0, peak_per_s=8.0, length_ms=9, period_ms=10),
        durations=Durations(least_ms=11, most_ms=12),
        heavy_tail=HeavyTail(least_ms=13, most_ms=14, alpha=1.5),
        priorities=(16, 0, 17),
        deadlines=Deadlines(base_ms=18, multiplier=19.0, jitter_ms=20),
        lanes={"main": 21, "mail": 22},
        tenants={"ant": 23},
        skewed={"bee": 24, "cat": 1},
        factors={"dog": 25},
        churn=Churn(active=26, stay_ms=27),
    )
    assert found.failures == Failures(failing=0.25, lost=0.5, attempts=28, backoff_ms=29, lease_ms=30)
    assert found.limits == {"ant": Limits(weight=31.0), "bee": Limits(ceiling=32)}


def test_what_a_profile_does_not_set_is_as_by_default(own: Path) -> None:
    own.write_text("")
    found = load(str(own))
    assert (found.run, found.shape, found.failures, found.limits) == (Run(), Shape(), Failures(), {})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("jobs = 10", "own.toml: jobs is 10: there is no such field here, leave it out; there are run, "),
        (
            "[run]\njob = 10",
            "own.toml: run.job is 10: there is no such field here, leave it out; there are jobs, slots",
        ),
        ("run = 3", r"own.toml: run is 3: make it a table: [run]."),
        ("[run]\njobs = 0", "own.toml: run.jobs is 0: give a whole number from 1 to 10000000."),
        ("[run]\njobs = true", "own.toml: run.jobs is True: give a whole number from 1 to 10000000."),
        ("[run]\njobs = 1.0", "own.toml: run.jobs is 1.0: give a whole number"),
        ("[run]\nslots = 100001", "own.toml: run.slots is 100001: give a whole number from 1 to 100000."),
        ('[run]\nexecution = "gpu"', "own.toml: run.execution is 'gpu': give one of sleep, cpu."),
        ("[run]\nexecution = []", "own.toml: run.execution is []: give one of sleep, cpu."),
        ("[arrivals]\nload = nan", "own.toml: arrivals.load is nan: give a number from 0.01 to 100."),
        ('[arrivals]\nrate_per_s = "4"', "own.toml: arrivals.rate_per_s is '4': give a number from 0.001 to 1e+06."),
        ("[arrivals]\nload = 1\nrate_per_s = 4", "own.toml: arrivals.rate_per_s is 4.0: load is given, too, and one"),
        ("[arrivals.bursts]\npeak_per_s = 0", "own.toml: arrivals.bursts.peak_per_s is 0: give a number from 0.001"),
        (
            "[arrivals.bursts]\nlength_ms = 6000",
            "own.toml: arrivals.bursts.length_ms is 6000: give at most period_ms, 5000.",
        ),
        ("[durations]\nmost_ms = 39", "own.toml: durations.most_ms is 39: give at least least_ms, 40."),
        ("[heavy_tail]\nleast_ms = 4001", "own.toml: heavy_tail.most_ms is 4000: give at least least_ms, 4001."),
        ("[heavy_tail]\nalpha = 0", "own.toml: heavy_tail.alpha is 0: give a number from 0.1 to 100."),
        ("[priorities]\nweights = []", "own.toml: priorities.weights is []: give a list of 1 to 101 whole numbers"),
        ("[priorities]\nweights = [0, 0]", "own.toml: priorities.weights is [0, 0]: give a list"),
        ("[priorities]\nweights = [1, -1]", "own.toml: priorities.weights is [1, -1]: give a list"),
        ("[deadlines]\njitter_ms = -1", "own.toml: deadlines.jitter_ms is -1: give a whole number from 0 to 3600000."),
        ('[lanes]\n"a b" = 1', "own.toml: lanes.a b is 1: give it a name of the form "),
        ("[tenants.even]\n_x = 1", "own.toml: tenants.even._x is 1: give it a name of the form "),
        ("[tenants.even]\nant = 0.5", "own.toml: tenants.even.ant is 0.5: give a whole number from 0 to 1000000."),
        ("[tenants.even]\nant = 0", "own.toml: tenants.even is {'ant': 0}: make it a table of names and whole numbers"),
        ("[tenants]\nfactors = 3", "own.toml: tenants.factors is 3: make it a table of names and whole numbers"),
        ("[tenants.factors]\nant = 0\nbee = 1", "own.toml: tenants.factors.ant is 0: give a whole number from 1"),
        ("[tenants.churn]\nactive = 0", "own.toml: tenants.churn.active is 0: give a whole number from 1"),
        (
            "[failures]\nfailing = 0.6\nlost = 0.5",
            "own.toml: failures.lost is 0.5: with failing, 0.6, it must not exceed",
        ),
        ("[limits]\nant = 2", "own.toml: limits.ant is 2: make it a table: [limits.ant]."),
        ("[limits.ant]\nweight = 0", "own.toml: limits.ant.weight is 0: give a number from 0.001"),
        ("[limits.ant]\nceiling = 0", "own.toml: limits.ant.ceiling is 0: give a whole number from 1"),
        ('[limits."a b"]\nweight = 1', "own.toml: limits.a b is 'a b': give a name of the form "),
        ("[run", "own.toml is no TOML: "),
    ],
)
def test_an_error_names_the_field_the_value_and_the_remedy(own: Path, text: str, told: str) -> None:
    own.write_text(text)
    with pytest.raises(InvalidProfile) as caught:
        load(str(own))
    assert str(caught.value).startswith(told)


def test_a_profile_that_is_not_there_is_refused_with_those_that_are(own: Path) -> None:
    with pytest.raises(
        InvalidProfile, match=r"^profile is 'fool', which cannot be read \(.*\): give one of crowd, failure, "
    ):
        load("fool")
    own.write_bytes(b"\xff")
    with pytest.raises(InvalidProfile, match=r"^own\.toml is no TOML: "):
        load(str(own))


def test_the_profiles_of_the_package() -> None:
    assert NAMES == ("crowd", "failure", "flood", "full", "quick", "realwork")
    quick, full = load("quick"), load("full")
    assert quick.shape == Shape(load=1.25)
    assert (full.shape.rate_per_s, full.shape.bursts.mean_per_s) == (400, 400)
    assert (full.shape.priorities, full.shape.deadlines) == ((50, 25, 15, 7, 3), Deadlines(multiplier=4.0))
    assert (load("failure").failures.lost, bool(quick.failures)) == (0.2, False)
    assert load("realwork").run.execution == "cpu"


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("name", NAMES)
def test_every_profile_makes_every_workload(name: str, kind: str) -> None:
    found = profiles.load(name).workload(kind, jobs=20)
    assert (found.name, len(found.jobs), found.slots) == (kind, 20, load(name).run.slots)
    assert 1 <= found.load <= 1.5


def test_other_weights_and_ceilings_stand_before_those_of_the_profile(own: Path) -> None:
    own.write_text("[limits.ant]\nweight = 2\nceiling = 3")
    found = load(str(own)).limited({"ant": 5.0}, {"bee": 4})
    assert found.limits == {"ant": Limits(weight=5.0, ceiling=3), "bee": Limits(ceiling=4)}
