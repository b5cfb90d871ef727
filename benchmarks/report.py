"""The report of the study's grid: how long it takes to write, to open and to filter, and how large it is.

python -m benchmarks --only report
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

MODELS, TRAIN_SETS, SHOTS, SEEDS, STEPS = 8, ("mnli", "snli"), (16, 64, 256), (0, 1, 2), 40
ROUNDS = 5  # of opening the page
OOD = ("anli", "hans", "paws", "rte", "scitail", "sick", "wnli")


def paper_table(models: int = MODELS, steps: int = STEPS) -> pd.DataFrame:
    """Made-up scores of the study's shape: 8 models x 2 train sets x 3 shots x 3 seeds, 40 steps, 8 sets."""
    draw = np.random.default_rng(0)
    frames = []
    for model in range(models):
        for train_set in TRAIN_SETS:
            loads = draw.normal(0, 0.03, (2, len(OOD)))
            for shots in SHOTS:
                for seed in SEEDS:
                    frames += _run(f"model-{125 * 2**model}m", train_set, shots, seed, steps, loads, draw)
    return pd.concat(frames, ignore_index=True)


def _run(
    model: str, train_set: str, shots: int, seed: int, steps: int, loads: Any, draw: np.random.Generator
) -> list[pd.DataFrame]:
    at = np.arange(steps)
    inside = 0.5 + 0.35 * (1 - np.exp(-at / 12)) + 0.01 * draw.normal(size=steps)
    common = draw.normal(size=(steps, 2))
    about = {"run": f"{model}_{train_set}_{seed}_{shots}", "model": model, "train_set": train_set}
    about |= {"shots": shots, "seed": seed, "data_seed": seed, "n": 1000}
    frames = []
    for k, name in enumerate((train_set, *OOD)):
        own = inside if k == 0 else 0.4 + 0.4 * inside + common @ loads[:, k - 1] + 0.01 * draw.normal(size=steps)
        share = 0.5 + 0.1 * draw.normal(size=steps)
        role = "ood" if k else "in_domain"
        for metric, values in (("accuracy", own), ("share:Yes", share), ("share:No", 1 - share)):
            made = {"step": at, "test_set": name, "role": role, "metric": metric, "value": np.clip(values, 0, 1)}
            frames.append(pd.DataFrame({**about, **made}))
    return frames


def measure(say: Callable[[str], None] = print) -> dict[str, Any]:
    """Seconds, bytes and milliseconds: the whole command, then the page in a browser."""
    with tempfile.TemporaryDirectory() as scratch:
        table, page = Path(scratch) / "scores.csv", Path(scratch) / "report.html"
        paper_table().to_csv(table, index=False)
        found = {
            "report": _command(table, page),
            "full": _command(table, page.with_name("full.html"), "--full"),
            "bytes": page.stat().st_size,
            "bytes_full": page.with_name("full.html").stat().st_size,
            **_browsed(page),
        }
    say(f"report: {found}")
    return found


def _command(table: Path, page: Path, *options: str) -> dict[str, float]:
    """Seconds of `oodles report`, start of Python and reading of the table included: of one core, and by the clock."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, "-m", "oodles", "report", str(table), "--out", str(page), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    clock, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    core = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"core": round(core, 1), "clock": round(clock, 1)}


CHOOSE = """([name, value]) => {
  const control = document.querySelector(`[data-control="${name}"]`);
  const start = performance.now();
  control.value = value;
  control.dispatchEvent(new Event("change"));
  document.body.offsetHeight;  // laid out, too
  return performance.now() - start;
}"""
CONTROLS = """[...document.querySelectorAll("select[data-control]")]
  .map((s) => [s.dataset.control, [...s.options].map((o) => o.value).findLast((v) => v !== s.value)])"""


def _browsed(page: Path) -> dict[str, Any]:
    """Seconds until the page is drawn and answers; milliseconds of every filter, at the top and further down.

    Those of one core are what the page's thread worked; by the clock they hold whatever else the machine did.
    """
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from browser import CHROMIUM, Browser

    if CHROMIUM is None:
        return {"open": None, "filters": None}
    opened, clock, core = [], [], []
    with Browser() as browser:
        for _ in range(ROUNDS):
            start = time.monotonic()
            tab = browser.open(page)
            tab.evaluate("document.getElementById('pair-title').textContent")
            opened.append(time.monotonic() - start)
            tab.evaluate("oodles.flush()")
            tab.send("Performance.enable", timeDomain="threadTicks")
            for place in ("verdict", "explore", "network"):
                tab.evaluate(f"document.getElementById('{place}').scrollIntoView({{behavior: 'instant'}})")
                for choice in tab.evaluate(CONTROLS):
                    before = _worked(tab)
                    clock.append(tab.evaluate(f"({CHOOSE})({json.dumps(choice)})"))
                    core.append(_worked(tab) - before)
                    tab.evaluate("oodles.flush()")
            tab.close()
    filters = {"median": round(statistics.median(core)), "most": round(max(core)), "count": len(core)}
    filters |= {"clock_median": round(statistics.median(clock)), "clock_most": round(max(clock))}
    return {"open": round(statistics.median(opened), 1), "filters": filters}


def _worked(tab: Any) -> float:
    """Milliseconds of one core that the page's thread has taken."""
    found = {one["name"]: one["value"] for one in tab.send("Performance.getMetrics")["metrics"]}
    return 1000 * float(found["ThreadTime"])


def markdown(found: dict[str, Any]) -> str:
    whole, full, filters = found["report"], found["full"], found["filters"]
    browsed = (
        "No browser was here to open it."
        if filters is None
        else f"Chromium opens and draws it in {found['open']} s (median of {ROUNDS}); a filter is answered, with every"
        f" figure on the screen drawn anew, in {filters['median']} ms of one core (median of {filters['count']}; the"
        f" slowest took {filters['most']} ms), {filters['clock_median']} and {filters['clock_most']} ms by the clock of"
        " a busy machine."
    )
    return (
        f"`oodles report` on the study's grid (144 runs x {STEPS} steps x 8 test sets in a CSV file, 16 groups, made-up"
        f" scores) takes {whole['core']} s of one core, from the start of Python to the page: the analysis, the claim"
        f" across models, 24 other choices, correlations by shots, and the file of {found['bytes'] / 1e6:.1f} MB. With"
        f" `--full`, which asks every further question, it takes {full['core']} s and"
        f" {found['bytes_full'] / 1e6:.1f} MB. {browsed}\n"
    )
