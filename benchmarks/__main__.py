"""All benchmarks: `python -m benchmarks` writes benchmarks/results.json and the tables in docs/performance.md."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
from pathlib import Path
from typing import Any

from benchmarks.statistics import measure_speed, save
from oodles.errors import OodlesError

ROOT = Path(__file__).parent
RESULTS = ROOT / "results.json"
PAGE = ROOT.parent / "docs" / "performance.md"
FIGURE = ROOT.parent / "docs" / "scoring.png"
MARK = "<!-- table made by `make bench` -->"
BENCHMARKS = ("statistics", "scoring", "training", "grid", "stored", "report", "imports", "tasks")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=BENCHMARKS, help="one benchmark; default: all")
    parser.add_argument("--quick", action="store_true", help="scoring on a small sample; prints, writes nothing")
    parser.add_argument("--whole", action="store_true", help="scoring: everyone scores everything in every round")
    chosen = parser.parse_args()
    try:
        wanted = [chosen.only] if chosen.only else list(BENCHMARKS)
        if "statistics" in wanted and not chosen.quick:
            bench_statistics()
        if "scoring" in wanted:
            bench_scoring(chosen.quick, chosen.whole)
        for name in ("training", "grid", "stored", "report", "imports", "tasks"):
            if name in wanted and not chosen.quick:
                bench_prose(name)
    except OodlesError as error:  # e.g. the test sets are not here
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


def bench_statistics() -> None:
    print("statistics: 144 runs x 60 steps x 8 sets", flush=True)
    results = read_results()
    results.setdefault("statistics", {}).setdefault("cells", {})["speed"] = measure_speed(0)
    results["machine"] = {"python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}"}
    save(RESULTS, results)
    head = PAGE.read_text().split(MARK)[0]
    PAGE.write_text(f"{head}{MARK}\n\n{table(results)}")
    print(f"wrote {RESULTS} and {PAGE}")


def bench_scoring(quick: bool, whole: bool) -> None:
    from benchmarks import scoring  # needs torch

    options = scoring.Options(whole=whole)
    if quick:
        options = scoring.Options(size=scoring.QUICK_SIZE, rounds=scoring.QUICK_ROUNDS, whole=whole)
    found = scoring.measure(options, lambda line: print(line, flush=True))
    print(scoring.markdown(found))
    if quick:
        return
    save(RESULTS, {**read_results(), "scoring": found})
    scoring.put_into(PAGE, scoring.markdown(found), MARK)
    scoring.draw_figure(found, FIGURE)
    print(f"wrote {RESULTS}, {PAGE} and {FIGURE}")


def bench_prose(name: str) -> None:
    """A benchmark whose figures stand between marks of the page."""
    module = importlib.import_module(f"benchmarks.{name}")
    found = module.measure(lambda line: print(line, flush=True))
    save(RESULTS, {**read_results(), name: found})
    begin, end = f"<!-- {name}, by `make bench` -->", f"<!-- end of {name} -->"
    before, rest = PAGE.read_text().split(begin, 1)
    PAGE.write_text(f"{before}{begin}\n\n{module.markdown(found)}\n{end}{rest.split(end, 1)[1]}")
    print(module.markdown(found))


def read_results() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def table(results: dict[str, dict[str, dict[str, dict[str, object]]]]) -> str:
    """The figures as Markdown."""
    speed = results["statistics"]["cells"]["speed"]
    rows = [
        ("statistics: whole study, jackknife and 2,000 bootstrap refits, seconds", speed["seconds"]),
        ("statistics: refits in it", speed["refits"]),
        ("statistics: times as fast as a loop of pyGAM fits", speed.get("times_faster_than_pygam", "not measured")),
        ("statistics: peak memory, GB", speed["peak_memory_gb"]),
    ]
    by_runs = speed["seconds_by_runs"]
    assert isinstance(by_runs, dict)
    rows += [
        (f"statistics: {runs} runs, jackknife + bootstrap, seconds", f"{t['jackknife']} + {t['bootstrap']}")
        for runs, t in by_runs.items()
    ]
    lines = ["| what | figure |", "|---|---|", *(f"| {what} | {figure} |" for what, figure in rows)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
