"""Prompts -> token ids: what stands before a text, the answers as they continue it, and what is shortened to fit.

Needs a tokenizer, no model and no torch. Only the field that the pattern names in `truncate` is ever shortened, at its
end; the question and the answers stay whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oodles.errors import DataError, ModelError
from oodles.records import Prompt, PromptSet

JOINED = 64  # prompts of a set on which it is checked that an answer leaves their tokens alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A set in tokens."""

    prompts: tuple[tuple[int, ...], ...]
    targets: tuple[tuple[int, ...], ...]  # tokens of each answer
    shortened: tuple[str, ...] = ()  # ids of the prompts that were shortened


def encode(tokenizer: Any, prompts: PromptSet, limit: int | None = None) -> Encoded:
    """Token ids of every prompt and of every answer; prompts over the limit are shortened or refused.

    Parameters
    ----------
    limit : what the model can take; the set's own `max_tokens` holds if it is smaller.
    """
    if not prompts.prompts:
        raise DataError(f"{prompts.name}: no prompts to score")
    for prompt in prompts.prompts:
        if not prompt.text.strip():
            raise DataError(f"{prompts.name}: prompt {prompt.id} is empty; expected a text")
    texts = [wrap(tokenizer, p.text, prompts.chat) for p in prompts.prompts]
    start = [] if prompts.chat else start_tokens(tokenizer)
    step = max(1, len(texts) // JOINED)
    targets = answer_tokens(tokenizer, prompts.answers, texts[::step])
    room = most_tokens(prompts, limit, targets)
    encoded, shortened = [], []
    for prompt, ids in zip(prompts.prompts, bare_tokens(tokenizer, texts), strict=True):
        if room is not None and len(start) + len(ids) > room:
            ids = _shorten(tokenizer, prompts, prompt, room - len(start), len(start) + len(ids))
            shortened.append(prompt.id)
        encoded.append((*start, *ids))
    return Encoded(prompts=tuple(encoded), targets=targets, shortened=tuple(shortened))


def most_tokens(prompts: PromptSet, limit: int | None, targets: Sequence[Sequence[int]]) -> int | None:
    """How many tokens a prompt may have, so that prompt and answer fit."""
    given = [n for n in (limit, prompts.max_tokens) if n is not None]
    return min(given) - max(len(t) for t in targets) + 1 if given else None


def bare_tokens(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Tokens of the texts alone, nothing put before or after them."""
    # transformers warns of long texts here, which are seen to afterwards
    return list(tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"])


def start_tokens(tokenizer: Any) -> list[int]:
    """What the tokenizer puts before a text; what it puts after (some add eos) would hide the answer position."""
    bare = list(tokenizer("x", add_special_tokens=False)["input_ids"])
    full = list(tokenizer("x")["input_ids"])
    for at in range(len(full) - len(bare) + 1):
        if full[at : at + len(bare)] == bare:
            return full[:at]
    return []


def wrap(tokenizer: Any, text: str, chat: bool) -> str:
    """A text as the model reads it: as it is, or as a user's turn of the tokenizer's chat template."""
    if not chat:
        return text
    if not getattr(tokenizer, "chat_template", None):
        raise ModelError("the pattern asks for a chat template and the tokenizer has none; set chat = false")
    turn = [{"role": "user", "content": text}]
    return str(tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True))


def answer_tokens(tokenizer: Any, answers: Sequence[str], texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The tokens each answer adds to a prompt; refused if joining them changes the prompt's own tokens."""
    found = []
    for answer in answers:
        alone = tuple(tokenizer(answer, add_special_tokens=False)["input_ids"])
        changed = joins_badly(tokenizer, answer, texts)
        if changed is not None:
            raise ModelError(
                f"answer {answer!r} changes the prompt's tokens when joined to it (prompt ends in {changed[-12:]!r});"
                " begin the answer with a space, or end the pattern differently"
            )
        found.append(alone)
    if len(set(found)) < len(found):
        raise ModelError(f"answers {list(answers)} have equal tokens; choose answers the tokenizer tells apart")
    return tuple(found)


def joins_badly(tokenizer: Any, answer: str, texts: Sequence[str]) -> str | None:
    """The first text whose tokens change when the answer is joined to it."""
    alone = list(tokenizer(answer, add_special_tokens=False)["input_ids"])
    if not alone:
        return texts[0]
    together = bare_tokens(tokenizer, [text + answer for text in texts])
    for text, ids, joined in zip(texts, bare_tokens(tokenizer, texts), together, strict=True):
        if joined != ids + alone:
            return text
    return None


def context_limit(config: Any) -> int | None:
    """How many tokens a model takes, by its config; None where it has no such limit."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    for name in ("max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx"):
        value = getattr(text, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None


def _shorten(tokenizer: Any, prompts: PromptSet, prompt: Prompt, room: int, found: int) -> list[int]:
    """Tokens of the prompt with as much of its field as fits, cut between words where there are any."""
    if prompt.cut is None:
        raise DataError(
            f"{prompts.name}: prompt {prompt.id} has {found} tokens, the limit leaves {room}; "
            "name the field that may be shortened in the pattern's truncate, or leave the example out"
        )
    start, end = prompt.cut
    field = prompt.text[start:end]

    def tokens(kept: str) -> list[int]:
        text = prompt.text[:start] + kept + prompt.text[end:]
        return bare_tokens(tokenizer, [wrap(tokenizer, text, prompts.chat)])[0]

    low, high = 0, len(field)  # characters kept: low fits, high does not
    if len(tokens("")) > room:
        raise DataError(
            f"{prompts.name}: prompt {prompt.id} has over {room} tokens even without '{field[:20]}...'; leave the"
            " example out or raise the limit"
        )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if len(tokens(_at_word(field, middle))) <= room else (low, middle)
    return tokens(_at_word(field, low))


def _at_word(text: str, size: int) -> str:
    """The first `size` characters, less the word that is cut in two if there is another before it.

    >>> _at_word("one two three", 9)
    'one two'
    """
    kept = text[:size]
    if size < len(text) and not text[size].isspace() and any(c.isspace() for c in kept.strip()):
        kept = kept[: max(i for i, c in enumerate(kept) if c.isspace())]
    return kept.rstrip() if size < len(text) else kept
