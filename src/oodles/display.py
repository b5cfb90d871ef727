"""How results show themselves: as text in a terminal, as tables in a notebook.

Results are plain data and know nothing of figures and tables, so what shows them is loaded when it is asked for.
"""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Mapping
from html import escape
from typing import Any

from oodles.errors import plain

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


class Listed:
    """A value that prints as its title and facts, a line each, and that Jupyter shows as a table of them."""

    __slots__ = ()

    def told(self) -> tuple[str, Mapping[str, str]]:
        """The title, and the facts by name; empty facts are left out."""
        raise NotImplementedError

    def __str__(self) -> str:
        title, facts = self.told()
        wide = max((len(name) for name, fact in facts.items() if fact), default=0) + 2
        lines = [plain(title)]
        for name, fact in facts.items():
            if fact:
                wrapped = textwrap.wrap(plain(fact), WIDTH - wide - 2, break_on_hyphens=False) or [""]
                lines += [f"  {name if not i else '':<{wide}}{line}" for i, line in enumerate(wrapped)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        title, facts = self.told()
        rows = [
            f"<tr><th>{escape(name)}</th><td>{escape(plain(fact))}</td></tr>" for name, fact in facts.items() if fact
        ]
        return f"<h4>{escape(plain(title))}</h4><table><tbody>{''.join(rows)}</tbody></table>"
