"""Generate placeholder rows for a missing set, with the declared count and average length. For estimates only.

>>> from oodles.suite.load import load_suite
>>> hans = load_suite("nli").test_sets["hans"]
>>> rows = make_rows(hans)
>>> len(rows), round(sum(len(row["premise"]) for row in rows) / len(rows))
(30000, 53)
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from oodles.contracts import DataSet, Source

STAND_IN = "stand-in"  # name of the generator; a suite's TOML may not use it
SPREAD = 0.4  # standard deviation of the logarithm of a text's length; 0.2 to 0.6 in the sets of nli
MOST_SHOTS = 2000  # rows per label of a train set, from which shots are drawn

WORDS = (
    "a about after and are at because by can child city could day down every first for from had has he her house in"
    " into is it large many more near new not of old on one or other out over place said she some than that the their"
    " there they this three to two under was water were what when which who will with woman work would year"
)


def stand_in_for(data: DataSet, *, train: bool = False) -> DataSet | None:
    """Return the set with generated rows; None if the suite declares no counts or no lengths."""
    if not data.expect or not data.characters:
        return None
    most = MOST_SHOTS if train else None
    expect = {label: min(n, most or n) for label, n in data.expect.items() if label in data.labels}
    return replace(data, source=Source(generator=STAND_IN), expect=expect, columns={}, label_names={})


def make_rows(data: DataSet) -> list[dict[str, str]]:
    """Generate the expected number of rows per kept label; text lengths are log-normal around the declared mean."""
    labels = [label for label, n in data.expect.items() if label in data.labels for _ in range(n)]
    texts = {name: _texts(f"{data.name} {name}", mean, len(labels)) for name, mean in data.characters.items()}
    plain = dict.fromkeys(data.slices, "")
    return [plain | {"label": label} | {name: next(text) for name, text in texts.items()} for label in labels]


def _texts(seed: str, mean: float, count: int) -> Iterator[str]:
    rng = random.Random(seed)
    normal = np.random.default_rng(rng.getrandbits(64)).standard_normal(count)
    lengths = np.exp(SPREAD * normal)
    sizes = np.maximum(1, np.rint(lengths * (mean / lengths.mean()))).astype(int)
    ends = np.cumsum(sizes)
    words = ""
    while len(words) < ends[-1]:  # a word and its space have almost five characters on average
        words += " ".join([*rng.choices(WORDS.split(), k=1 + int(ends[-1]) // 4), ""])
    return (words[end - size : end] for end, size in zip(ends.tolist(), sizes.tolist(), strict=True))
