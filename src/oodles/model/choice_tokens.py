"""Tokenise examples that have their own choices, exactly as lm-evaluation-harness does.

Spaces at the end of a context belong to the continuation. The continuation's tokens are those of the joined text after
as many as the context has alone. An empty context is the tokenizer's start token, else its end token. Sequences over
the limit lose their beginning.
"""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oodles.contracts import PromptSet
from oodles.disk import put
from oodles.errors import DataError, ModelError, StoreError
from oodles.model.prefix_trees import Ints, Sequences, Tokens
from oodles.model.tokens import AT_ONCE, Encoded, Tokeniser, bare_tokens, encode_all, start_tokens, wrap

Pair = tuple[str, str]  # a context and its continuation
Split = tuple[list[int], list[int]]  # the tokens of both


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncodedChoices:
    """A tokenised set: the sequences of all choices, prompt by prompt, then those of the baseline."""

    tokens: Tokens  # of contexts and continuations, concatenated
    starts: Ints  # start of each sequence, and the end of the last
    reads: Ints  # how many tokens at the end of each sequence are its continuation
    counts: Ints  # choices of each prompt
    base: Ints  # of each choice the sequence of its baseline; empty without one
    shortened: tuple[str, ...] = ()  # ids of the prompts that were shortened

    @property
    def sequences(self) -> Sequences:
        """What goes through the model: every sequence without its last token, read where it predicts."""
        whole = np.ones(len(self.tokens), dtype=bool)
        whole[self.starts[1:] - 1] = False
        sizes = np.diff(self.starts) - 1
        return Sequences(
            tokens=self.tokens[whole],
            starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            reads=tuple(map(int, self.reads)),
        )

    @property
    def targets(self) -> tuple[tuple[int, ...], ...]:
        """The tokens of every continuation."""
        ends = self.starts[1:]
        return tuple(tuple(self.tokens[end - size : end].tolist()) for end, size in zip(ends, self.reads, strict=True))

    @property
    def lengths(self) -> Ints:
        return np.diff(self.starts)


def encode_sets(tokenizer: Any, sets: Sequence[PromptSet], limit: int | None) -> list[Encoded | EncodedChoices]:
    """Tokenise sets of both kinds; equal sets are read from the cache."""
    plain = [prompts for prompts in sets if not prompts.has_choices]
    encoded: Iterator[Encoded] = iter(encode_all(tokenizer, plain, limit))
    tokeniser = Tokeniser.of(tokenizer)
    return [_encode_once(tokeniser, prompts, limit) if prompts.has_choices else next(encoded) for prompts in sets]


def encode_choices(tokenizer: Any, prompts: PromptSet, limit: int | None = None) -> EncodedChoices:
    """Return the tokens of every choice of every prompt, and of the baseline."""
    owners = [prompt for prompt in prompts.prompts for _ in prompt.choices]
    pairs = [
        (wrap(tokenizer, choice.context, prompts.chat), choice.continuation)
        for prompt in prompts.prompts
        for choice in prompt.choices
    ]
    base: list[int] = []
    baselines: dict[Pair, int] = {}
    if prompts.baseline is not None:
        before = wrap(tokenizer, prompts.baseline, prompts.chat) if prompts.baseline else ""
        for owner, (_, continuation) in zip(list(owners), pairs, strict=True):
            pair = before, continuation
            if pair not in baselines:
                baselines[pair] = len(pairs) + len(baselines)
                owners.append(owner)
            base.append(baselines[pair])
    most = min((n for n in (limit, prompts.max_tokens) if n is not None), default=None)
    flat, sizes, reads, shortened = [], [0], [], {}
    splits = split_pairs(tokenizer, [*pairs, *baselines], prompts.chat)
    for owner, (known, scored) in zip(owners, splits, strict=True):
        where = f"{prompts.name}: example {owner.id}"
        if not known or not scored:
            raise DataError(f"{where}: a choice adds no token to its context; choose other texts")
        if most is not None and len(scored) > most:
            raise DataError(f"{where}: a choice has {len(scored)} tokens, the limit is {most}; leave it out")
        ids = known + scored
        if most is not None and len(ids) > most + 1:
            ids = ids[-(most + 1) :]
            shortened[owner.id] = True
        flat.append(np.array(ids, dtype=np.int32))
        sizes.append(len(ids))
        reads.append(len(scored))
    return EncodedChoices(
        tokens=np.concatenate(flat),
        starts=np.cumsum(sizes, dtype=np.int64),
        reads=np.array(reads, dtype=np.int64),
        counts=np.array([len(prompt.choices) for prompt in prompts.prompts], dtype=np.int64),
        base=np.array(base, dtype=np.int64),
        shortened=tuple(shortened),
    )


def split_pairs(tokenizer: Any, pairs: Sequence[Pair], chat: bool = False) -> list[Split]:
    """Return the tokens of contexts and of their continuations, start tokens included."""
    start, prefix = [] if chat else start_tokens(tokenizer), _prefix_token(tokenizer)
    opening = tokenizer.decode(prefix)
    moved = [_moved(*pair) for pair in pairs]
    alone = {context: place for place, context in enumerate(dict.fromkeys(context for context, _ in moved if context))}
    contexts = _batched(tokenizer, list(alone))
    wholes = _batched(tokenizer, [context + continuation for context, continuation in moved])
    found: list[Split] = []
    for (context, _), whole in zip(moved, wholes, strict=True):
        if not context:
            found.append(([prefix], whole) if whole[:1] != [prefix] else (whole[:1], whole[1:]))
            continue
        own = contexts[alone[context]]
        found.append(([*([] if context.startswith(opening) else start), *own], whole[len(own) :]))
    return found


def _moved(context: str, continuation: str) -> Pair:
    """Move spaces at the end of a context to its continuation."""
    bare = context.rstrip()
    return bare, context[len(bare) :] + continuation


def _batched(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    return [
        ids for first in range(0, len(texts), AT_ONCE) for ids in bare_tokens(tokenizer, texts[first : first + AT_ONCE])
    ]


def _prefix_token(tokenizer: Any) -> int:
    """The token that stands for an empty context."""
    for token in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    raise ModelError("the tokenizer has neither a start nor an end token; expected one, for texts without a context")


# the cache


def _encode_once(tokeniser: Tokeniser, prompts: PromptSet, limit: int | None) -> EncodedChoices:
    """Like `encode_choices`, cached on disk: the same texts are tokenised once per tokenizer."""
    path = tokeniser.cache_of(prompts, limit)
    encoded = None if path is None else _read_cache(path)
    if encoded is None:
        encoded = encode_choices(tokeniser.tokenizer, prompts, limit)
        if path is not None:
            _write_cache(path, encoded)
    return encoded


ARRAYS = ("tokens", "starts", "reads", "counts", "base")


def _read_cache(path: Path) -> EncodedChoices | None:
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as arrays:
            shortened = tuple(map(str, arrays["shortened"]))
            return EncodedChoices(**{name: arrays[name] for name in ARRAYS}, shortened=shortened)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None  # missing or damaged: recomputed


def _write_cache(path: Path, encoded: EncodedChoices) -> None:
    """Cache the tokens, best effort."""
    arrays = {name: getattr(encoded, name) for name in ARRAYS}
    with contextlib.suppress(StoreError), put(path, durable=False) as aside, aside.open("wb") as handle:
        np.savez(handle, **arrays, shortened=np.array(encoded.shortened, dtype=np.str_))
