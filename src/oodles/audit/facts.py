"""Facts about each set of an audit, as typed records; `as_dict` is for `audit.json` and `oodles check --json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPrompt:
    """A prompt as the model sees it; tokens only if a tokenizer is available."""

    text: str
    answer: str
    tokens: tuple[str, ...] | None = None
    answer_tokens: tuple[str, ...] | None = None

    def as_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"text": self.text, "answer": self.answer}
        if self.tokens is not None:
            fields |= {"tokens": list(self.tokens), "answer_tokens": list(self.answer_tokens or ())}
        return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFacts:
    """Token counts of a set's prompts; `shortened` is None if a prompt cannot be shortened to fit."""

    tokens: int
    mean_tokens: float
    max_tokens: int
    shown: tuple[ShownPrompt, ...]
    shortened: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFacts:
    """A set rendered with one pattern for one model."""

    n: int
    hash: str
    shown: tuple[ShownPrompt, ...]
    tokens: TokenFacts | None = None

    def as_dict(self) -> dict[str, Any]:
        shown = self.tokens.shown if self.tokens else self.shown
        fields: dict[str, Any] = {"n": self.n, "hash": self.hash, "shown": [prompt.as_dict() for prompt in shown]}
        if self.tokens is not None:
            sizes = ("tokens", "mean_tokens", "max_tokens")
            fields |= {name: getattr(self.tokens, name) for name in sizes}
            fields |= {} if self.tokens.shortened is None else {"shortened": self.tokens.shortened}
        return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFacts:
    """A train or test set: sizes, labels, origin, and its prompts by pattern and model."""

    name: str
    kind: str
    n: int
    labels: Mapping[str, int]
    dropped: Mapping[str, int]
    chance: float
    hash: str
    origin: str
    revision: str | None
    tags: tuple[str, ...] = ()  # kinds of shift
    rendered: dict[str, dict[str, PromptFacts]] = field(default_factory=dict)
    shallow: tuple[float | None, ...] = ()  # accuracy of a hypothesis-only baseline, if requested

    def as_dict(self) -> dict[str, Any]:
        rendered = {p: {m: facts.as_dict() for m, facts in by_model.items()} for p, by_model in self.rendered.items()}
        fields = {"set": self.name, "kind": self.kind, "n": self.n, "labels": dict(self.labels)}
        fields |= {"dropped": dict(self.dropped), "chance": self.chance, "hash": self.hash, "origin": self.origin}
        fields |= {"revision": self.revision, "rendered": rendered}
        fields |= {"tags": list(self.tags)} if self.tags else {}
        return fields | ({"hypothesis_only": self.shallow[0]} if self.shallow else {})
