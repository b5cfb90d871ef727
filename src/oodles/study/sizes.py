"""Count test sets and shots in a model's tokens, or by characters if its tokenizer is not available."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oodles.contracts import PromptSet, RunSpec
from oodles.model.choice_tokens import encode_sets
from oodles.model.prefix_trees import ROW_TOKENS, Sequences, pack_rows
from oodles.model.scoring import STRETCH, sequences_of
from oodles.runs.train import Candidates, encode_shots
from oodles.study.footprint import Footprint

CHARACTERS_PER_TOKEN = 4.3  # for English prompts, if the tokenizer is not available


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSize:
    """The size of a rendered set for a model."""

    prompts: int
    answers: int
    tokens: int
    computed: int  # a shared prefix counts once
    batch: tuple[int, int]  # rows of the largest batch, and their length


Sizes = dict[tuple[str, str], SetSize]  # by name and hash of the rendered set


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reader:
    """Counts tokens with a model's tokenizer, or by characters if it is not available; each set once."""

    batch_tokens: int
    tokenizer: Any = None
    limit: int | None = None  # token limit
    footprint: Footprint | None = None
    known: Sizes = field(default_factory=dict)

    def size(self, key: tuple[str, str], prompts: PromptSet) -> SetSize:
        if key not in self.known:
            self.known[key] = self._measure(prompts)
        return self.known[key]

    def _measure(self, prompts: PromptSet) -> SetSize:
        if self.tokenizer is None:  # characters share prefixes as tokens would
            each, sequences = CHARACTERS_PER_TOKEN, _characters(prompts)
            tokens = len(sequences.tokens)
        else:
            (encoded,) = encode_sets(self.tokenizer, [prompts], self.limit)
            each, sequences, tokens = 1.0, sequences_of(encoded), len(encoded.tokens)
        packing = pack_rows(
            sequences,
            round(self.batch_tokens * each),
            row_tokens=round(ROW_TOKENS * each),
            stretch=STRETCH if prompts.has_choices else 0,
        )
        batches = [(len(batch), math.ceil(batch[0].length / each)) for batch in packing.batches]
        return SetSize(
            prompts=len(prompts),
            answers=max((len(p.choices) for p in prompts.prompts), default=0) or len(prompts.answers),
            tokens=round(tokens / each),
            computed=round(packing.tokens / each),
            batch=max(batches, key=lambda batch: batch[0] * batch[1] ** 2),
        )

    def shots(self, prompts: PromptSet, spec: RunSpec) -> Candidates:
        if self.tokenizer is not None:
            return encode_shots(self.tokenizer, prompts, spec.recipe, self.limit)
        texts = [
            p.choices[p.gold].context + p.choices[p.gold].continuation if p.choices else p.text for p in prompts.prompts
        ]
        lengths = [math.ceil(len(text) / CHARACTERS_PER_TOKEN) for text in texts]
        return Candidates(examples=[{"sequences": [([0] * n, [0])], "gold": 0} for n in lengths])


def _characters(prompts: PromptSet) -> Sequences:
    own = [choice.context + choice.continuation for prompt in prompts.prompts for choice in prompt.choices]
    texts = own or [prompt.text for prompt in prompts.prompts]
    codes = np.frombuffer("".join(texts).encode("utf-32-le"), dtype=np.int32)
    return Sequences(tokens=codes, starts=np.cumsum([0, *map(len, texts)], dtype=np.int64), reads=1)
