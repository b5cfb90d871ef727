"""Checks of sets whose examples have their own choices: do length, position or repetition give the answer away?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from oodles.audit.checks import Finding
from oodles.audit.facts import ShownPrompt, TokenFacts
from oodles.audit.overlap import normalise
from oodles.contracts import Example, PromptSet
from oodles.errors import OodlesError
from oodles.model.choice_tokens import encode_choices
from oodles.model.tokens import bare_tokens

CLEAR = 4.0  # standard errors above guessing from which a shortcut is reported
LISTED_SETS = 200  # examples whose joined tokens are compared


def check_choices(where: str, examples: Sequence[Example]) -> Iterator[Finding]:
    """Find choices that can be told apart without being understood."""
    guessing = sum(1 / len(e.choices) for e in examples)
    spread = math.sqrt(sum(1 / len(e.choices) * (1 - 1 / len(e.choices)) for e in examples))
    for which, pick in (("longest", max), ("shortest", min)):
        hits = sum(_share_of_ties(e, pick) for e in examples)
        if hits - guessing > CLEAR * spread:
            text = (
                f"the {which} choice is right in {hits / len(examples):.1%}, guessing in {guessing / len(examples):.1%}"
            )
            yield Finding(code="choice-length", where=where, text=text)
    if len({e.choices for e in examples}) > 1:  # choices that are the same everywhere are labels: see `balance`
        yield from _check_positions(where, examples)
    answered = [e for e in examples if _holds_its_answer(e)]
    if answered:
        text = f"{len(answered)} of {len(examples)} prompts hold their own question with its answer, as an example"
        yield Finding(code="choice-told", where=where, text=text, items=tuple(f"id {e.id}" for e in answered))
    same = [e for e in examples if len({normalise(choice) for choice in e.choices}) < len(e.choices)]
    if same:
        right = sum(Counter(map(normalise, e.choices))[normalise(e.choices[e.answer])] > 1 for e in same)
        text = f"{len(same)} of {len(examples)} examples have equal choices; in {right} one of them is right"
        yield Finding(code="choice-same", where=where, text=text, items=tuple(f"id {e.id}" for e in same))


def _holds_its_answer(example: Example) -> bool:
    """Whether the examples in a task's prompt have the question itself among them."""
    if not example.rendered:
        return False
    right = example.rendered[example.answer]
    gap = len({choice.context for choice in example.rendered}) > 1
    question = example.choices[example.answer] if gap else example.fields.get("question", "")
    return bool(question) and question + right.continuation in right.context


def _share_of_ties(example: Example, pick: Callable[[Sequence[int]], int]) -> float:
    """How often the right choice is picked by its length; ties are broken at random."""
    sizes = [len(choice) for choice in example.choices]
    best = pick(sizes)
    return (sizes[example.answer] == best) / sizes.count(best)


def _check_positions(where: str, examples: Sequence[Example]) -> Iterator[Finding]:
    for place in range(max(len(e.choices) for e in examples)):
        able = [e for e in examples if len(e.choices) > place]
        found = sum(e.answer == place for e in able)
        expected = sum(1 / len(e.choices) for e in able)
        spread = math.sqrt(sum(1 / len(e.choices) * (1 - 1 / len(e.choices)) for e in able))
        if found - expected > CLEAR * spread:
            text = f"choice {place + 1} is right in {found / len(able):.1%}, by chance {expected / len(able):.1%}"
            yield Finding(code="choice-position", where=where, text=text)


def shown_prompts(prompts: PromptSet) -> tuple[ShownPrompt, ...]:
    """The first prompts of a set, with the right answers."""
    return tuple(
        ShownPrompt(
            text=p.choices[p.gold].context if p.choices else p.text,
            answer=p.choices[p.gold].continuation if p.choices else prompts.answers[p.gold],
        )
        for p in prompts.prompts[:2]
    )


def check_choice_tokens(
    tokenizer: Any, prompts: PromptSet, limit: int | None, where: str
) -> tuple[TokenFacts | None, list[Finding]]:
    """Tokenise a set as scoring does; return its facts and findings."""
    findings = list(_check_joins(tokenizer, prompts, where))
    try:
        encoded = encode_choices(tokenizer, prompts, limit)
    except OodlesError as error:
        return None, [*findings, Finding(code="prompt-long", where=where, text=str(error))]
    lengths = encoded.lengths
    facts = TokenFacts(
        tokens=int(lengths.sum()),
        mean_tokens=round(float(lengths.mean()), 1),
        max_tokens=int(lengths.max()),
        shown=shown_prompts(prompts),
        shortened=len(encoded.shortened),
    )
    if encoded.shortened:
        text = f"{len(encoded.shortened)} of {len(prompts)} prompts exceed the limit and lose their beginning"
        items = tuple(f"id {identity}" for identity in encoded.shortened)
        findings.append(Finding(code="prompt-shortened", where=where, text=text, items=items))
    return facts, findings


def _check_joins(tokenizer: Any, prompts: PromptSet, where: str) -> Iterator[Finding]:
    """Find contexts whose own tokens change when a choice follows; the scored tokens are then no text's own."""
    step = max(1, len(prompts) // LISTED_SETS)
    pairs = [(p.id, c.context.rstrip(), c) for p in prompts.prompts[::step] for c in p.choices if c.context.strip()]
    if prompts.chat or not pairs:
        return
    alone = bare_tokens(tokenizer, [context for _, context, _ in pairs])
    whole = bare_tokens(tokenizer, [c.context + c.continuation for _, _, c in pairs])
    changed = [identity for (identity, _, _), a, b in zip(pairs, alone, whole, strict=True) if b[: len(a)] != a]
    if changed:
        text = f"{len(changed)} of {len(pairs)} choices change the tokens of their context; begin them with a space"
        yield Finding(
            code="choice-joins", where=where, text=text, items=tuple(f"id {i}" for i in dict.fromkeys(changed))
        )
