"""Data for the comparisons with other implementations: drawn from a seed, so that only their answers are stored."""

from __future__ import annotations

import numpy as np

SIZES = (20, 21, 24, 60, 180, 540)
SMOOTHINGS = (0.001, 0.6, 1000.0)


def spline_case(number: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """In-domain scores, and three OOD scores that follow them along curves."""
    draw = np.random.default_rng([7, number, size])
    x = np.sort(draw.uniform(0.4, 0.9, size)) if number % 3 else 0.4 + 0.5 * draw.beta(5, 2, size)
    shared = draw.normal(size=size)
    curves = [np.sin(6 * x) / 5 + 0.5, 0.5 + (x - 0.4) ** 2, 0.9 * x]
    noise = [0.02 * (0.6 * shared + 0.8 * draw.normal(size=size)) for _ in curves]
    return x, np.column_stack([curve + error for curve, error in zip(curves, noise, strict=True)])


def gcv_case(number: int) -> tuple[np.ndarray, np.ndarray]:
    """A case of random size for the selection of the smoothing."""
    size = int(np.random.default_rng([11, number]).integers(25, 300))
    x, y = spline_case(1000 + number, size)
    return x, y[:, :2]


def linear_case(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Two OOD scores and one or two in-domain scores; the later the case, the closer they follow."""
    draw = np.random.default_rng([13, number])
    size, n_covariates = int(draw.integers(8, 200)), 1 + number % 2
    z = draw.normal(size=(size, n_covariates))
    noise = 10.0 ** -(number % 5)
    common = draw.normal(size=size)
    y = np.column_stack([z @ draw.normal(size=n_covariates) + noise * (common + draw.normal(size=size)) for _ in "ab"])
    return z, y
