"""Numbers as readers see them, everywhere the same: rounded here and nowhere earlier."""

from __future__ import annotations

import math

MISSING = "–"
MINUS = "−"


def signed(value: float, minus: str = MINUS) -> str:
    """Two decimals and a sign; what rounds to nothing has none.

    >>> signed(0.123), signed(0.004), signed(float("nan"))
    ('+0.12', '0.00', '–')
    """
    if not math.isfinite(value):
        return MISSING
    text = f"{float(value):+.2f}"
    return "0.00" if text[1:] == "0.00" else text.replace("-", minus)


def p_value(value: float) -> str:
    """Three decimals without the leading 0, never 0 itself.

    >>> p_value(0.0421), p_value(1e-9), p_value(1.0)
    ('.042', '<.001', '1.000')
    """
    if not math.isfinite(value):
        return MISSING
    return "<.001" if value < 0.001 else f"{value:.3f}".removeprefix("0")
