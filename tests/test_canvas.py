"""Colours that figures share."""

from __future__ import annotations

import matplotlib
from matplotlib.colors import to_hex

from oodles.show import canvas


def test_colours_that_follow_the_page_are_no_cell_colours() -> None:
    palette = {to_hex(c) for c in matplotlib.colormaps[canvas.PALETTE](range(256))}
    assert not palette & {canvas.INK, canvas.MUTED, canvas.GRID, canvas.OOD, canvas.IN_DOMAIN, canvas.SHARE}
