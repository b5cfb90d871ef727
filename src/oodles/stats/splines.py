"""Penalised B-splines: the smooth of an OOD score on the in-domain score.

The basis and the penalty are those of pyGAM's `LinearGAM(s(0))` (Eilers and Marx, 1996): cubic B-splines on uniform
knots between two edges, and squared second differences of neighbouring coefficients. pyGAM adds an intercept column,
which the basis already spans, and a ridge of `sqrt(eps)` that makes the sum unique. Here the intercept is absorbed
into the basis by hand, which leaves the same fit from a smaller matrix that is not nearly singular: with
`a = coefficients + intercept`, minimising the ridge over the intercept gives `a' (I - 11'/(m + 1)) a`.

Try it::

    basis = bspline_basis(x, edges=(x.min(), x.max()))
    coefficients = np.linalg.solve(basis.T @ basis + 0.6 * difference_penalty(20) + ridge(20), basis.T @ y)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SPLINES = 20  # of a pooled fit, as pyGAM has it
SMOOTHING = 0.6
ORDER = 3
RIDGE = float(np.sqrt(np.finfo(float).eps))
GAMMA = 1.4  # pyGAM counts every degree of freedom 1.4 times when it selects the smoothing
GRID: Array = np.logspace(-3, 3, 11)


def bspline_basis(x: Array, edges: tuple[float, float], n_splines: int = SPLINES) -> Array:
    """Cubic B-splines on uniform knots between two edges.

    Parameters
    ----------
    x : array of shape (n,)
        Where to evaluate. Values outside the edges are moved to the nearer edge.
    edges : (float, float)
        The outermost knots. They stay fixed while runs are left out: knots that move with the resample would change
        what is estimated.
    n_splines : int
        Number of basis functions, at least 4.

    Returns
    -------
    array of shape (n, n_splines)
        Each row sums to 1.

    Examples
    --------
    >>> basis = bspline_basis(np.array([0.0, 0.5, 1.0]), (0.0, 1.0), n_splines=4)
    >>> basis.round(4).tolist()
    [[0.1667, 0.6667, 0.1667, 0.0], [0.0208, 0.4792, 0.4792, 0.0208], [0.0, 0.1667, 0.6667, 0.1667]]

    References
    ----------
    Eilers, P. H. C. and Marx, B. D. (1996). Flexible smoothing with B-splines and penalties. Statistical Science 11.
    """
    pieces = n_splines - ORDER
    width = edges[1] - edges[0]
    # One distinct in-domain score leaves nothing to smooth: every row is the same, which is an intercept.
    unit = np.zeros(len(x)) if width <= 0 else np.clip((x - edges[0]) / width, 0.0, 1.0)
    scaled = unit * pieces
    cell = np.minimum(scaled.astype(np.int64), pieces - 1)
    local = _cubic_pieces(scaled - cell)
    basis = np.zeros((len(x), n_splines))
    np.put_along_axis(basis, cell[:, None] + np.arange(ORDER + 1), local, axis=1)
    return basis


def _cubic_pieces(t: Array) -> Array:
    """The four cubic B-splines that are not zero in a cell, at `t` in [0, 1] of the cell."""
    s = 1.0 - t
    return np.stack(
        [
            s**3 / 6,
            (4 - 6 * t**2 + 3 * t**3) / 6,
            (4 - 6 * s**2 + 3 * s**3) / 6,
            t**3 / 6,
        ],
        axis=1,
    )


def difference_penalty(n_splines: int) -> Array:
    """`D'D` with `D` the second differences of the coefficients.

    >>> difference_penalty(4).tolist()
    [[1.0, -2.0, 1.0, 0.0], [-2.0, 5.0, -4.0, 1.0], [1.0, -4.0, 5.0, -2.0], [0.0, 1.0, -2.0, 1.0]]
    """
    second = np.diff(np.eye(n_splines), n=2, axis=0)
    penalty: Array = second.T @ second
    return penalty


def ridge(n_splines: int) -> Array:
    """pyGAM's conditioning ridge with its intercept minimised out.

    >>> bool(np.allclose(ridge(4).sum(axis=0), RIDGE / 5))
    True
    """
    matrix: Array = RIDGE * (np.eye(n_splines) - np.full((n_splines, n_splines), 1 / (n_splines + 1)))
    return matrix
