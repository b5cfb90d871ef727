"""Settings in words that a reader knows: for notes below tables and for the methods paragraph."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from oodles.stats.verdict import noise_known

METHODS = {
    "gam": "a penalised spline",
    "linear": "a straight line",
    "probit-linear": "a straight line on the probit scale",
    "logit-linear": "a straight line on the logit scale",
}
INTERVALS = {
    "jackknife": "jackknife over runs",
    "t": "t over models",
    "run-mean": "t over runs",
    "bootstrap": "bootstrap over runs",
    "bootstrap-percentile": "percentile bootstrap over runs",
    "naive": "points taken as independent",
}
CORRELATIONS = {"pearson": "Pearson", "spearman": "Spearman (ranks)"}
POOLING = {
    "pooled": "one curve for all runs (pooled)",
    "run": "one curve and a level of its own for each run (within runs)",
    "separate": "one curve per run (separate)",
}

INSIDE = {  # noise of the in-domain set, as p-values know it
    "known": "allowing for noise of the in-domain set",
    "unknown": "without allowance for noise of the in-domain set, which is not known",
    "in part": "allowing for noise of the in-domain set where it is known",
    "exact": "taking in-domain scores as free of noise where it is not known",
}
OUTSIDE = {  # noise of the OOD sets, as corrected correlations know it
    "records": "was estimated from per-example records",
    "range": "was bounded from the sets' sizes",
    "none": "is not known",
}


def in_words(names: Iterable[object], words: Mapping[str, str]) -> str:
    """Names as words, each once.

    >>> in_words(["gam", "gam"], METHODS)
    'a penalised spline'
    """
    return ", ".join(dict.fromkeys(words.get(str(name), str(name)) for name in names))


def readable(text: str) -> str:
    """Text without notation of the program, and with minus signs for hyphens before numbers.

    >>> readable("accuracies in 0..1"), readable("r = -0.38 at step-1")
    ('accuracies in 0 to 1', 'r = −0.38 at step-1')
    """
    told = re.sub(r"(?<=\d)\.\.(?=[\d+−-])", " to ", text).replace("r_corrected", "the corrected r")
    return re.sub(r"(?<![^\s(\[])-(?=\.?\d)", "−", told)


def methods(table: pd.DataFrame, settings: Mapping[str, Any]) -> str:
    """A paragraph for a paper: what was done, with the choices that were made."""
    metric = str(settings.get("metric") or "accuracy").replace("_", " ")
    by = [str(name).replace("_", " ") for name in settings.get("by") or ()]
    where = f"Separately for each {' and '.join(by)}, the" if by else "The"
    level = float(settings.get("level", math.nan))
    units = (
        f"{table['n_units'].min():g}"
        if table["n_units"].nunique() == 1
        else (f"{table['n_units'].min():g} to {table['n_units'].max():g}")
    )
    tested = int(table["p_corrected"].notna().sum()) if "p_corrected" in table else 0
    said = [
        f"{where} {metric} on every OOD test set was regressed on in-domain {metric} by"
        f" {in_words(table['method'], METHODS)}: {in_words(table['within'], POOLING)}.",
        f"The residuals of each pair of test sets were correlated ({in_words(table['correlation'], CORRELATIONS)}).",
        f"Intervals ({100 * level:g} %): {in_words(table['interval'], INTERVALS)};"
        f" {units} independent units ({settings.get('unit') or 'runs'}).",
    ]
    if settings.get("shared_start") == "drop":
        said.append("Points that several runs share from their first step on (the untrained model) were left out.")
    if tested:
        said.append(f"p-values, {INSIDE[noise_known(table)]}, are adjusted by Holm's method over {tested} tests.")
    known = set(table["corrected_by"]) if "corrected_by" in table else {"none"}
    said.append(f"Noise of finite OOD test sets {next(OUTSIDE[kind] for kind in OUTSIDE if kind in known)}.")
    return " ".join(said)
