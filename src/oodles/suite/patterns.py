"""Turn examples into prompts with a pattern, and draw the fixed sample of `limit`."""

from __future__ import annotations

import hashlib
import heapq
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from oodles.contracts import Example, Pattern, Prompt, PromptSet
from oodles.errors import DataError, nearest
from oodles.suite.choices import render_choices, shown_text
from oodles.suite.load import check_pattern, fields_of, pattern_pieces

K = TypeVar("K", bound=Hashable)
MARK = "\x00oodles cut\x00"  # placeholder for the field that may be shortened, when a function renders the prompt
Cut = tuple[int, int] | None


def render(pattern: Pattern, examples: Sequence[Example], name: str, limit: int | None = None) -> PromptSet:
    """Render a set with a pattern.

    Examples
    --------
    >>> pattern = Pattern(name="q", text="{premise} Question: {hypothesis} Yes or No?", answers=(" Yes", " No"))
    >>> one = Example(id="1", fields={"premise": "It rains.", "hypothesis": "It is wet."}, label="e", answer=0)
    >>> render(pattern, [one], "toy").prompts[0].text
    'It rains. Question: It is wet. Yes or No?'
    """
    check_pattern(pattern, f"pattern '{pattern.name}'")
    if limit is not None:
        examples = sample(examples, limit, shared_field(pattern, examples))
    if not pattern.answers:
        return _with_choices(pattern, examples, name, limit)
    write = _writer(pattern, name)
    prompts = []
    for example in examples:
        if example.answer >= len(pattern.answers):
            raise DataError(
                f"{name}: example {example.id}: label '{example.label}' is answer number {example.answer}, pattern"
                f" '{pattern.name}' has {len(pattern.answers)}; use a pattern with more answers or map the label again"
            )
        text, cut = write(example)
        prompts.append(Prompt(id=example.id, text=text, gold=example.answer, cut=cut))
    return PromptSet(
        name=name,
        answers=pattern.answers,
        prompts=tuple(prompts),
        limit=limit,
        max_tokens=pattern.max_tokens,
        chat=pattern.chat,
    )


def _with_choices(pattern: Pattern, examples: Sequence[Example], name: str, limit: int | None) -> PromptSet:
    """Render a set whose examples have their own answers."""
    prompts = []
    for example in examples:
        if not example.choices:
            raise DataError(
                f"{name}: example {example.id} has no choices, and pattern '{pattern.name}' no answers; give the set"
                " choices or another pattern"
            )
        choices = render_choices(pattern, example, f"{name}: pattern '{pattern.name}'")
        prompts.append(Prompt(id=example.id, text=shown_text(choices), gold=example.answer, choices=choices))
    baseline = "" if pattern.score == "minus_baseline" and pattern.baseline is None else pattern.baseline
    if baseline is not None and all(len({c.continuation for c in p.choices}) == 1 for p in prompts):
        raise DataError(
            f"{name}: a baseline decides nothing where all choices have the same continuation, as those that fill a gap"
            " have; choose another score"
        )
    return PromptSet(
        name=name,
        answers=(),
        prompts=tuple(prompts),
        limit=limit,
        max_tokens=pattern.max_tokens,
        chat=pattern.chat,
        score=pattern.score,
        baseline=baseline,
    )


def shared_field(pattern: Pattern, examples: Sequence[Example]) -> str:
    """Return the field that examples tend to share: the one that may be shortened, else the first."""
    if pattern.truncate is not None:
        return pattern.truncate
    if isinstance(pattern.text, str):
        return next(iter(fields_of(pattern)), "")
    return next((name for e in examples[:1] for name in e.fields), "")


def _writer(pattern: Pattern, where: str) -> Callable[[Example], tuple[str, Cut]]:
    """Return a function that renders an example and locates the field that may be shortened."""
    if callable(pattern.text):
        function = pattern.text
        return lambda example: _call(function, pattern, example, where)
    pieces = pattern_pieces(pattern)

    def write(example: Example) -> tuple[str, Cut]:
        text, cut = "", None
        for literal, name in pieces:
            text += literal
            if name is None:
                continue
            if name not in example.fields:
                raise DataError(
                    f"{where}: example {example.id} has no field '{name}' of pattern '{pattern.name}';"
                    f" {nearest(name, example.fields)}"
                )
            if name == pattern.truncate:
                cut = (len(text), len(text) + len(example.fields[name]))
            text += example.fields[name]
        return text, cut

    return write


def _call(
    function: Callable[[Mapping[str, str]], str], pattern: Pattern, example: Example, where: str
) -> tuple[str, Cut]:
    """Render a prompt with a user's function; a marker locates the field that may be shortened."""

    def write(fields: Mapping[str, str]) -> str:
        try:
            text = function(fields)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise DataError(f"{where}: pattern '{pattern.name}' failed on example {example.id} ({reason})") from error
        if not isinstance(text, str):
            raise DataError(
                f"{where}: pattern '{pattern.name}' gave {type(text).__name__} on example {example.id}, expected a text"
            )
        return text

    text = write(dict(example.fields))
    if pattern.truncate is None or pattern.truncate not in example.fields:
        return text, None
    before, *after = write({**example.fields, pattern.truncate: MARK}).split(MARK)
    field = example.fields[pattern.truncate]
    if len(after) != 1 or before + field + after[0] != text:
        return text, None  # the function changes the field, so it cannot be shortened afterwards
    return text, (len(before), len(before) + len(field))


def sample(examples: Sequence[Example], limit: int, shared: str) -> tuple[Example, ...]:
    """Draw a fixed sample, stratified in proportion to label x slice; a larger limit contains every smaller one.

    Rows are ranked by a hash of the field `shared`. Examples with the same premise have the same rank in their strata
    and tend to be drawn together, so their common prefix is computed once.
    """
    if limit >= len(examples):
        return tuple(examples)
    by_label: dict[str, dict[tuple[str, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, example in sorted(enumerate(examples), key=lambda pair: _rank(pair[1], shared)):
        by_label[example.label][tuple(example.slices.values())].append(index)
    # labels first, then slices within each label: rounding many small strata together would skew the labels
    of_label = _apportion({label: sum(map(len, slices.values())) for label, slices in by_label.items()}, limit)
    chosen: list[int] = []
    for label, slices in by_label.items():
        seats = _apportion({key: len(rows) for key, rows in slices.items()}, of_label[label])
        chosen += [index for key, rows in slices.items() for index in rows[: seats[key]]]
    return tuple(examples[i] for i in sorted(chosen))


def _rank(example: Example, shared: str) -> tuple[str, str]:
    text = example.fields.get(shared, example.id)
    return hashlib.sha256(f"oodles sample\n{text}".encode()).hexdigest(), example.id


def _apportion(sizes: Mapping[K, int], seats: int) -> dict[K, int]:
    """Apportion seats by size (Sainte-Laguë): more seats never take one from a stratum, so samples are nested."""
    given = dict.fromkeys(sizes, 0)
    # largest quotient first; among equal quotients, the last by name
    order = sorted(sizes, key=str, reverse=True)
    waiting = [(-float(sizes[key]), place) for place, key in enumerate(order) if sizes[key]]
    heapq.heapify(waiting)
    for _ in range(seats):
        _, place = heapq.heappop(waiting)
        key = order[place]
        given[key] += 1
        if given[key] < sizes[key]:
            heapq.heappush(waiting, (-sizes[key] / (2 * given[key] + 1), place))
    return given
