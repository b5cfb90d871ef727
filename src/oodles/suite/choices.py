"""Answers per example: read them from columns, find the right one, and render each as a context and a continuation.

>>> pattern = Pattern(name="goal", text="Question: {goal}\\nAnswer:")
>>> one = Example(id="1", fields={"goal": "Cool soup"}, label="1", answer=0, choices=("Blow on it.", "Boil it."))
>>> [choice.continuation for choice in render_choices(pattern, one, "toy")]
[' Blow on it.', ' Boil it.']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from oodles.contracts import Choice, DataSet, Example, Pattern, ScoreForm
from oodles.errors import DataError, nearest
from oodles.files import Rows
from oodles.suite.columns import lists_of, texts_of
from oodles.suite.load import pieces_of

METRICS: Mapping[ScoreForm, str] = {  # form of the score -> its accuracy, by the name that the harness uses
    "sum": "acc",
    "per_character": "acc_norm",
    "per_byte": "acc_bytes",
    "per_token": "acc_token",
    "minus_baseline": "acc_mutual_info",
}


# reading


def read_choices(
    rows: Rows, data: DataSet, place: str, keep: Sequence[int], labels: Sequence[str]
) -> tuple[list[tuple[str, ...]], list[int]]:
    """Return the choices of every kept row, and the index of the right one; `labels` are those of the kept rows."""
    if isinstance(data.choices, str):
        lists = lists_of(rows, data.choices, place, keep)
    else:
        columns = [texts_of(rows, column, place, keep, gaps=True) for column in data.choices]
        lists = [
            _without_end(cells, place, number) for number, cells in zip(keep, zip(*columns, strict=True), strict=True)
        ]
    named = lists_of(rows, data.gold, place, keep) if data.gold not in ("index", "text") else lists
    gold = []
    for number, label, own, names in zip(keep, labels, lists, named, strict=True):
        if len(own) < 2 or not all(choice.strip() for choice in own):
            raise DataError(f"{place} row {number + 1}: choices {own}, expected at least two, none of them empty")
        gold.append(_index(label, names, data, f"{place} row {number + 1}", len(own)))
    return [tuple(own) for own in lists], gold


def _without_end(cells: Sequence[str], place: str, number: int) -> list[str]:
    """The cells up to the last that is filled: rows may have fewer choices than columns, but no gap between two."""
    filled = [cell for cell in cells if cell.strip()]
    if filled != list(cells[: len(filled)]):
        raise DataError(f"{place} row {number + 1}: a choice is empty and a later one is not; fill it")
    return filled


def _index(label: str, names: Sequence[str], data: DataSet, where: str, count: int) -> int:
    """The index of the right choice."""
    if data.labels:
        index = data.labels.get(label, -1)
        if index < 0:
            raise DataError(f"{where}: label '{label}' has no mapping; mapped: {', '.join(data.labels)}")
    elif data.gold == "index":
        index = int(label) if label.isascii() and label.isdigit() else -1
    else:
        found = [place for place, name in enumerate(names) if name == label]
        if len(found) > 1:
            raise DataError(f"{where}: label '{label}' names {len(found)} of the choices; expected one")
        index = found[0] if found else -1
    if not 0 <= index < count:
        hint = "" if data.gold == "index" else f"; {nearest(label, names)}"
        raise DataError(
            f"{where}: label '{label}' is none of {count} choices{hint}; expected an index from 0, or say what it is"
            " with gold or labels"
        )
    return index


def label_names(choices: Sequence[tuple[str, ...]], gold: Sequence[int]) -> list[str]:
    """Labels of examples: the right answer's text if all have the same, distinct choices, else its position from 1."""
    if len(set(choices)) == 1 and len({text.strip() for text in choices[0]}) == len(choices[0]):
        return [choices[0][index] for index in gold]
    return [str(index + 1) for index in gold]


def chance_of(gold: Sequence[int], choices: Sequence[int] = ()) -> float:
    """Accuracy of guessing: the best constant answer, or position; with choices at least one over their number.

    >>> chance_of([0, 0, 1]), chance_of([0, 1, 2, 1], [4, 4, 4, 4]), chance_of([0, 1, 2, 3], [2, 2, 4, 4])
    (0.6666666666666666, 0.5, 0.375)
    """
    best = float(np.bincount(np.asarray(gold)).max() / len(gold))
    return max(best, float(np.mean(1 / np.asarray(choices)))) if len(choices) else best


# rendering


def render_choices(pattern: Pattern, example: Example, where: str) -> tuple[Choice, ...]:
    """Render every choice of an example."""
    return example.rendered or tuple(_render(pattern, example, choice, where) for choice in example.choices)


def _render(pattern: Pattern, example: Example, choice: str, where: str) -> Choice:
    fields = {**example.fields, "choice": choice}
    text = pattern.text(dict(example.fields)) if callable(pattern.text) else _fill(pattern.text, fields, example, where)
    continuation = _fill(pattern.choice, fields, example, where)
    if pattern.blank:
        if pattern.blank in text:
            text, _, continuation = text.partition(pattern.blank)
            text += choice
        elif pattern.blank in continuation:
            continuation = continuation.replace(pattern.blank, choice, 1)
        else:
            raise DataError(f"{where}: example {example.id} has no blank '{pattern.blank}'; expected one to fill")
    if not continuation.strip():
        raise DataError(f"{where}: example {example.id}: nothing is left to score after {text[-30:]!r}")
    return Choice(context=text, continuation=continuation, text=choice)


def _fill(template: str, fields: Mapping[str, str], example: Example, where: str) -> str:
    parts = []
    for literal, name in pieces_of(template, where):
        parts.append(literal)
        if name is not None:
            if name not in fields:
                raise DataError(f"{where}: example {example.id} has no field '{name}'; {nearest(name, fields)}")
            parts.append(fields[name])
    return "".join(parts)


def shown_text(choices: Sequence[Choice]) -> str:
    """What people see of a prompt: the context, or what contexts that differ have in common."""
    first, last = min(c.context for c in choices), max(c.context for c in choices)
    same = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:same]
