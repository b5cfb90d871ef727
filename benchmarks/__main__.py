"""All benchmarks: `python -m benchmarks` writes benchmarks/results.json and the table in docs/performance.md."""

from __future__ import annotations

import json
import platform
from pathlib import Path

from benchmarks.statistics import measure_speed, save

ROOT = Path(__file__).parent
RESULTS = ROOT / "results.json"
PAGE = ROOT.parent / "docs" / "performance.md"
MARK = "<!-- table made by `make bench` -->"


def main() -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    print("statistics: 144 runs x 60 steps x 8 sets", flush=True)
    results.setdefault("statistics", {}).setdefault("cells", {})["speed"] = measure_speed(0)
    results["machine"] = {"python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}"}
    save(RESULTS, results)
    head = PAGE.read_text().split(MARK)[0]
    PAGE.write_text(f"{head}{MARK}\n\n{table(results)}")
    print(f"wrote {RESULTS} and {PAGE}")


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
    main()
