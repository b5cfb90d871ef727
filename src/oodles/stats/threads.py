"""One thread for linear algebra: on matrices as small as those of an analysis, threads only wait for each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import threadpool_limits

P = ParamSpec("P")
R = TypeVar("R")


def one_thread(call: Callable[P, R]) -> Callable[P, R]:
    """The same call with one BLAS thread; what was set before holds again after it.

    >>> one_thread(max)(1, 2)
    2
    """

    @wraps(call)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        with threadpool_limits(limits=1, user_api="blas"):
            return call(*args, **kwargs)

    return limited
