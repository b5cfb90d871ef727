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
    assert plan.counts is not None
    texts = [choice.text for prompt in prompts.prompts for choice in prompt.choices]
    forms: dict[ScoreForm, FloatArray] = {
        "sum": scores,
        "per_character": scores / by_prompt(np.array([len(t) for t in texts], dtype=float), plan.counts),
        "per_byte": scores / by_prompt(np.array([len(t.encode()) for t in texts], dtype=float), plan.counts),
        "per_token": scores / by_prompt(np.array([len(t) for t in plan.targets], dtype=float), plan.counts),
    }
    return forms if base is None else {**forms, "minus_baseline": scores - base}
