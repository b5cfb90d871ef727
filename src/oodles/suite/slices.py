"""Slices: parts of a test set by label or by a column, used under names such as `hans/lexical_overlap`.

A slice is named by values: `hans/constituent/entailment` is the part of `hans` whose heuristic is `constituent` and
whose label is `entailment`. If two columns have the same value, the name includes the column: `hans/template=temp1`. A
slice is never scored: its scores come from the records of its set.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oodles.contracts import Example, PromptSet, content_hash
from oodles.errors import ConfigError, nearest

LABEL = "label"  # every set has slices by label


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Labels, slice columns and items of a rendered set, without its texts; stored with the runs."""

    test_set: str
    prompts: str  # hash of the rendered set
    ids: tuple[str, ...]
    gold: tuple[int, ...]
    columns: Mapping[str, tuple[str, ...]]  # label and the slice columns, in the order of the ids
    items: tuple[int, ...] = ()  # item number of each example; empty if the items are not known
    key: str = ""  # pattern and limit: sets with the same name and key must be equal
    choices: tuple[int, ...] = ()  # how many answers each example has of its own; empty: they have the pattern's

    @property
    def identity(self) -> str:
        """Hash of the rendered set and its slice data."""
        return f"{self.prompts} {content_hash({name: list(cells) for name, cells in self.columns.items()})}"

    @property
    def content(self) -> str:
        """Hash of everything that is stored: ids, gold answers, items and choices, too."""
        columns = {name: list(cells) for name, cells in self.columns.items()}
        return content_hash([list(self.ids), list(self.gold), list(self.items), list(self.choices), columns])


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A part of a test set: the examples with these values."""

    name: str  # as requested
    parent: str
    values: Mapping[str, str]  # column -> value

    def mask(self, members: Members) -> npt.NDArray[np.bool_]:
        """Return which examples belong to the slice."""
        inside = np.ones(len(members.ids), dtype=np.bool_)
        for column, value in self.values.items():
            inside &= np.array([cell == value for cell in members.columns[column]], dtype=np.bool_)
        return inside

    def __str__(self) -> str:
        return json.dumps(dict(self.values), sort_keys=True, ensure_ascii=False)


def members_of(prompts: PromptSet, examples: Sequence[Example], pattern: str = "", item: str = "") -> Members:
    """Return the members of a rendered set, which may be a sample of the examples.

    `item` names the field or slice column whose equal values form one item; without it, every example is an item.
    """
    by_id = {e.id: e for e in examples}
    chosen = [by_id[p.id] for p in prompts.prompts]
    of_example = _items(examples, item)
    return Members(
        test_set=prompts.name,
        prompts=prompts.hash,
        key=f"{pattern}, {'all' if prompts.limit is None else prompts.limit}",
        ids=tuple(e.id for e in chosen),
        gold=tuple(p.gold for p in prompts.prompts),
        items=tuple(of_example[e.id] for e in chosen),
        columns={name: tuple(cells) for name, cells in slice_columns(chosen).items()},
        choices=tuple(len(p.choices) for p in prompts.prompts) if prompts.has_choices else (),
    )


def _items(examples: Sequence[Example], item: str) -> dict[str, int]:
    """Return the item of each example by id: the index of the first example with the same value."""
    first: dict[str, int] = {}
    items = {}
    for place, example in enumerate(examples):
        value = example.slices.get(item) or example.fields.get(item) or None
        items[example.id] = place if value is None else first.setdefault(value, place)
    return items


def strata_of(columns: Mapping[str, Sequence[str]], items: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the stratum of each example: its label and slice values, as far as each stratum has two items or more.

    A stratum with one item shows no spread. It is joined with the strata that share all values but the last column's,
    and so on up to the label. So a slice column that is finer than the items forms no strata.

    Examples
    --------
    >>> columns = {"label": list("eeeenn"), "kind": list("uuuvwx")}
    >>> strata_of(columns, np.arange(6)).tolist()
    [0, 0, 0, 0, 1, 1]
    """
    names = list(columns)
    strata = np.full(len(items), -1, dtype=np.int64)
    label = _codes([columns[names[0]]])
    for depth in range(len(names), 0, -1):
        free = np.flatnonzero(strata < 0)
        codes = _codes([[columns[name][i] for i in free.tolist()] for name in names[:depth]])
        pairs = np.unique(np.column_stack([codes, items[free]]), axis=0)[:, 0]
        enough = np.bincount(pairs, minlength=int(codes.max(initial=-1)) + 1) >= 2
        chosen = enough[codes]
        strata[free[chosen]] = strata.max(initial=-1) + 1 + codes[chosen]
    for place in np.flatnonzero(strata < 0):  # the last item of a label joins the label's largest stratum
        own = strata[(label == label[place]) & (strata >= 0)]
        strata[place] = np.bincount(own).argmax() if len(own) else strata.max(initial=-1) + 1
    first = {code: number for number, code in enumerate(dict.fromkeys(strata.tolist()))}
    return np.array([first[code] for code in strata.tolist()], dtype=np.int64)


def _codes(columns: Sequence[Sequence[str]]) -> npt.NDArray[np.int64]:
    """Number the combinations of values in the order in which they appear."""
    codes: dict[tuple[str, ...], int] = {}
    return np.array([codes.setdefault(row, len(codes)) for row in zip(*columns, strict=True)], dtype=np.int64)


def slice_columns(examples: Sequence[Example]) -> dict[str, list[str]]:
    """Return the columns whose values name slices of these examples."""
    names = dict.fromkeys(name for e in examples for name in e.slices)
    return {LABEL: [e.label for e in examples], **{c: [e.slices.get(c, "") for e in examples] for c in names}}


def is_slice(name: str) -> bool:
    return "/" in name


def resolve_slice(name: str, columns: Mapping[str, Sequence[str]]) -> Slice:
    """Resolve a slice by its name; `columns` are the set's labels and slice columns.

    Examples
    --------
    >>> columns = {"label": ["e", "n"], "subcase": ["ln_subject/object_swap", "ce_adverb"]}
    >>> str(resolve_slice("hans/ln_subject/object_swap/n", columns))
    '{"label": "n", "subcase": "ln_subject/object_swap"}'
    """
    parent, _, rest = name.partition("/")
    values = {column: set(cells) for column, cells in columns.items()}
    matches = _match(rest, values)
    if not matches:
        choices = sorted({value for cells in values.values() for value in cells})
        close = nearest(rest, choices) if len(choices) <= 40 or "did you" in nearest(rest, choices) else ""
        raise ConfigError(f"test set '{name}': no such slice of '{parent}'; {close or 'see oodles suites --slices'}")
    if len(matches) > 1:
        ways = " or ".join(
            f"{parent}/{column}={value}" for column, value in (next(iter(f.items())) for f in matches[:2])
        )
        raise ConfigError(f"test set '{name}' is ambiguous ({ways}); name the column")
    return Slice(name=name, parent=parent, values=matches[0])


def _match(rest: str, values: Mapping[str, set[str]]) -> list[dict[str, str]]:
    """Yield every reading of `rest` as values joined by slashes; a value may contain a slash."""
    matches = []
    for column, cells in values.items():
        for value in cells:
            for written in (value, f"{column}={value}"):
                if rest == written:
                    matches.append({column: value})
                elif rest.startswith(written + "/"):
                    others = {c: v for c, v in values.items() if c != column}
                    matches += [{column: value, **more} for more in _match(rest[len(written) + 1 :], others)]
    unique = {tuple(sorted(f.items())): f for f in matches}
    return list(unique.values())


def slice_names(parent: str, columns: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """List every slice by one column, with its number of examples, under its shortest unambiguous name."""
    values = {column: set(cells) for column, cells in columns.items()}
    names = {}
    for column, cells in columns.items():
        for value, size in sorted(Counter(cells).items()):
            written = value if len(_match(value, values)) == 1 else f"{column}={value}"
            names[f"{parent}/{written}"] = size
    return names
