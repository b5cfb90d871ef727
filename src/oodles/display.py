"""How results show themselves: as text in a terminal, as tables in a notebook.

Results are plain data and know nothing of figures and tables, so what shows them is loaded when it is asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

WIDTH = 80


def _showing(name: str) -> Any:
    return getattr(importlib.import_module("oodles.show.notebook"), name)


class Displayed:
    """A result that prints as a short summary and that Jupyter shows as tables."""

    __slots__ = ()

    @property
    def verdict(self) -> str:
        """The answer in a sentence."""
        return str(_showing("verdict_of")(self))

    def summary(self, width: int = WIDTH) -> str:
        """The answer, a heatmap and the clearest pairs, as text of at most `width` columns."""
        return str(_showing("as_text")(self, width))

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return str(_showing("as_html")(self))
