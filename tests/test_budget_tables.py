"""A budget as tables, lines and plain data."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace

from oodles.study.budget import Budget, Cost, Memory, RunBudget
from oodles.study.budget_tables import (
    basis_lines,
    describe_budget,
    gpu_lines,
    in_units,
    sum_lines,
    table_of_counts,
    table_of_estimates,
    table_of_gpus,
    time_range,
)
from oodles.study.devices import DEVICES, Load, hours_on


def test_numbers_have_units() -> None:
    assert in_units(0, "B") == "0 B"
    assert in_units(999, "B") == "999 B"
    assert in_units(54.4e12, "FLOP") == "54.4 TFLOP"
    assert in_units(float("nan"), "FLOP") == "-"


COST = Cost(
    steps=15,
    evaluations=24,
    taken_over=0,
    prompts=480,
    prompt_tokens=9600,
    computed_tokens=7000,
    training_tokens=1000,
    arithmetic=3e12,
    seconds_low=60.0,
    seconds_high=120.0,
    disk=2_000_000,
)
NOTHING = Cost(**{field.name: 0 for field in fields(Cost)})  # type: ignore[arg-type]
MEMORY = Memory(process=10**9, weights=5 * 10**8, adapter=10**6, batch=10**7)
RUN = RunBudget(run="a", group=("m", "home", "q", 8), cost=COST, left=COST, would="train", memory=MEMORY)
OTHER = replace(RUN, run="b", cost=replace(COST, steps=20), left=NOTHING, would="skip")
GPUS = tuple(hours_on(device, [Load(model="m", arithmetic=3e18, memory=30 * 2**30)]) for device in DEVICES)
BUDGET = Budget(runs=(RUN, OTHER), device="cpu", gpus=GPUS, reported=None, rates={"m": 2e10}, notes=("a note",))
UNKNOWN = replace(COST, arithmetic=math.nan, seconds_low=math.nan, seconds_high=math.nan)


def test_counts_are_given_as_ranges_over_the_runs_of_a_row() -> None:
    columns, cells = table_of_counts(BUDGET)
    assert dict(zip(columns, cells[0], strict=True)) == {
        "model": "m",
        "train set": "home",
        "shots": "8",
        "runs": "2",
        "steps": "15 to 20",
        "evaluations": "24",
        "prompts": "480",
        "prompt tokens": "9,600",
        "computed": "7,000",
        "training tokens": "1,000",
    }
    two = replace(BUDGET, runs=(RUN, replace(OTHER, group=("m", "home", "p", 8))))
    assert table_of_counts(two)[0][:4] == ["model", "train set", "pattern", "shots"]  # named where there are several


def test_what_is_not_known_is_a_dash_and_none() -> None:
    unknown = replace(BUDGET, runs=(replace(RUN, cost=UNKNOWN, memory=None),), gpus=())
    assert table_of_estimates(unknown)[1][0][-4:] == ["-", "-", "-", "2.00 MB"]
    assert table_of_gpus(unknown)[1] == []
    assert time_range(UNKNOWN) == "-"
    described = describe_budget(unknown, {"a": "missing"})
    assert described["runs"][0]["arithmetic"] is None
    assert "memory" not in described["runs"][0]
    assert json.loads(json.dumps(described, allow_nan=False)) == described


def test_estimates_are_those_of_a_run_on_average() -> None:
    columns, cells = table_of_estimates(BUDGET)
    shown = dict(zip(columns, cells[0], strict=True))
    assert (shown["arithmetic"], shown["time"], shown["memory"]) == ("3.00 TFLOP", "1m00s to 2m00s", "1.51 GB")


def test_gpus_name_what_does_not_fit_and_compare_with_what_was_reported() -> None:
    columns, cells = table_of_gpus(BUDGET)
    last = {row[0]: row[-1] for row in cells}
    assert "m" in last["A5000"]
    assert "m" not in last["A100"]
    assert not any("reported" in line for line in gpu_lines(BUDGET))
    shares = gpu_lines(replace(BUDGET, reported=100.0))[-1]
    assert shares.startswith("reported cost of the study: about 100 GPU-hours. As a share of that, the estimate is ")
    assert f"{GPUS[2].hours / 100:.1%} on A100" in shares
    assert len(columns) == len(cells[0])


def test_the_sum_says_what_is_left_if_some_is_there() -> None:
    whole, left = sum_lines(BUDGET)
    assert whole.startswith("whole study: 2 runs, 35 steps, 48 evaluations, 16,000 tokens")
    assert left.startswith("left to run: 1 run, 15 steps, 24 evaluations, 8,000 tokens")
    assert len(sum_lines(replace(BUDGET, runs=(RUN,)))) == 1
    over = replace(RUN, cost=replace(COST, taken_over=3))
    assert "(and 3 of step 0 taken over from another run)" in sum_lines(replace(BUDGET, runs=(over,)))[0]


def test_the_basis_is_said_only_where_something_was_timed() -> None:
    assert "m 20.0 GFLOP/s" in basis_lines(BUDGET)[0]
    assert basis_lines(BUDGET)[-1] == "a note"
    assert basis_lines(replace(BUDGET, rates={})) == ["a note"]
