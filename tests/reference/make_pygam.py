"""Write pygam.json: what pyGAM 0.12.0 answers. Needs pygam, which pins scipy below 1.17: use an environment of its own.

python -m venv oracle && oracle/bin/pip install pygam==0.12.0 && oracle/bin/python tests/reference/make_pygam.py
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pygam
from cases import SIZES, SMOOTHINGS, gcv_case, spline_case
from pygam import LinearGAM, s


def fit(x: np.ndarray, y: np.ndarray, smoothing: float) -> LinearGAM:
    return LinearGAM(s(0), lam=smoothing).fit(x[:, None], y)


def default_case(size: int, smoothing: float) -> dict[str, object]:
    x, y = spline_case(0, size)
    models = [fit(x, y[:, k], smoothing) for k in range(y.shape[1])]
    left = np.column_stack([y[:, k] - m.predict(x[:, None]) for k, m in enumerate(models)])
    return {
        "size": size,
        "smoothing": smoothing,
        "edf": models[0].statistics_["edof"],
        "correlations": np.corrcoef(left.T)[np.triu_indices(3, 1)].tolist(),
        "residuals": left[:, 0].tolist(),
    }


def selected_case(number: int) -> dict[str, object]:
    x, y = gcv_case(number)
    models = [LinearGAM(s(0)).gridsearch(x[:, None], y[:, k], progress=False) for k in range(2)]
    left = [y[:, k] - m.predict(x[:, None]) for k, m in enumerate(models)]
    return {"smoothing": [float(m.lam[0][0]) for m in models], "r": float(np.corrcoef(left)[0, 1])}


def seconds_per_fit(size: int = 540, repeats: int = 40) -> float:
    x, y = spline_case(0, size)
    fit(x, y[:, 0], 0.6)
    start = time.perf_counter()
    for _ in range(repeats):
        fit(x, y[:, 0], 0.6)
    return (time.perf_counter() - start) / repeats


if __name__ == "__main__":
    answers = {
        "pygam": pygam.__version__,
        "numpy": np.__version__,
        "default": [default_case(size, smoothing) for size in SIZES for smoothing in SMOOTHINGS],
        "selected": [selected_case(number) for number in range(100)],
        "seconds_per_fit_of_540_points": seconds_per_fit(),
    }
    path = Path(__file__).with_name("pygam.json")
    path.write_text(json.dumps(answers) + "\n")
    print(f"{path.name}: {len(answers['default'])} fits, {len(answers['selected'])} selections")
