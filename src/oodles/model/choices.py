"""From log-probabilities of continuations to what was chosen: by sum, per length, or less a baseline."""

from __future__ import annotations

import numpy as np

from oodles.contracts import FloatArray, Predictions, PromptSet, ScoreForm
from oodles.model.forward import Plan
from oodles.model.prefix_trees import Ints
from oodles.suite.choices import METRICS


def by_prompt(values: FloatArray, counts: Ints) -> FloatArray:
    """Arrange one value per choice as (prompts, choices); nan where a prompt has no such choice."""
    table = np.full((len(counts), int(counts.max())), np.nan)
    table[np.arange(table.shape[1])[None, :] < counts[:, None]] = values[: int(counts.sum())]
    return table


def owners(plan: Plan) -> Ints:
    """The prompt of every sequence of a plan; of a baseline's, one of the prompts that use it."""
    assert plan.counts is not None
    own = np.repeat(np.arange(len(plan.counts)), plan.counts)
    if plan.base is None:
        return own
    every = np.concatenate([own, np.zeros(len(plan.sequences) - len(own), dtype=np.int64)])
    every[plan.base] = own
    return every


def judged(prompts: PromptSet, plan: Plan, values: FloatArray) -> Predictions:
    """Return what a model chooses, by the set's form of the score, and whether that is right by every form."""
    assert plan.counts is not None
    scores = by_prompt(values, plan.counts)
    base = None if plan.base is None else by_prompt(values[plan.base], plan.counts)
    gold = np.array([p.gold for p in prompts.prompts], dtype=np.int64)
    forms = _forms(prompts, plan, scores, base)
    chosen = {form: np.argmax(np.where(np.isnan(table), -np.inf, table), axis=1) for form, table in forms.items()}
    own = forms[prompts.score]
    best = np.nanmax(own, axis=1, keepdims=True)
    return Predictions(
        test_set=prompts.name,
        answers=prompts.common_answers,
        ids=tuple(p.id for p in prompts.prompts),
        scores=scores,
        gold=gold,
        chosen=chosen[prompts.score],
        tied=int(((own == best).sum(axis=1) > 1).sum()),
        right={METRICS[form]: found == gold for form, found in chosen.items()},
        base=base,
    )


def _forms(prompts: PromptSet, plan: Plan, scores: FloatArray, base: FloatArray | None) -> dict[ScoreForm, FloatArray]:
    """The scores in every form."""
    counts = plan.counts
    assert counts is not None
    texts = [choice.text for prompt in prompts.prompts for choice in prompt.choices]
    pairs = [(text, len(target)) for text, target in zip(texts, plan.targets, strict=False)]

    def per(form: ScoreForm) -> FloatArray:
        return scores / by_prompt(np.array([length_of(*pair, form) for pair in pairs]), counts)

    forms: dict[ScoreForm, FloatArray] = {
        "sum": scores,
        "per_character": per("per_character"),
        "per_byte": per("per_byte"),
        "per_token": per("per_token"),
    }
    return forms if base is None else {**forms, "minus_baseline": scores - base}


def length_of(text: str, tokens: int, form: ScoreForm) -> float:
    """What divides the score of a choice; the tokens are those of its continuation.

    >>> [length_of("naïve", 2, form) for form in ("sum", "per_character", "per_byte", "per_token")]
    [1.0, 5.0, 6.0, 2.0]
    """
    sizes = {"per_character": len(text), "per_byte": len(text.encode()), "per_token": tokens}
    return float(sizes.get(form, 1))
