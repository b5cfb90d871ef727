"""Tokenise prompts: start tokens, the answers as continuations of a prompt, and shortening to the limit.

Needs a tokenizer but neither a model nor torch. Only the field that the pattern names in `truncate` is shortened, at
its end; the question and the answers stay whole.
"""

from __future__ import annotations

import contextlib
import zipfile
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from oodles.contracts import Prompt, PromptSet, content_hash
from oodles.disk import cache_dir, put
from oodles.errors import DataError, ModelError, StoreError, first_line
from oodles.model.prefix_trees import Ints, Tokens

AT_ONCE = 4096  # prompts tokenised together
CODE = ("tokens.py", "choice_tokens.py")  # what makes tokens: another version of it makes others
JOINED = 64  # prompts per set on which we check that an answer does not change their tokens


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Encoded:
    """A tokenised set: the concatenated tokens of all prompts."""

    tokens: Tokens
    starts: Ints  # start of each prompt, and the end of the last
    targets: tuple[tuple[int, ...], ...]  # tokens of each answer
    shortened: tuple[str, ...] = ()  # ids of the prompts that were shortened

    @property
    def prompts(self) -> list[list[int]]:
        """Yield the tokens of each prompt."""
        return [part.tolist() for part in np.split(self.tokens, self.starts[1:-1])]

    @property
    def lengths(self) -> Ints:
        return np.diff(self.starts)


def encode(tokenizer: Any, prompts: PromptSet, limit: int | None = None) -> Encoded:
    """Return the token ids of every prompt and answer; prompts over the limit are shortened or refused.

    Parameters
    ----------
    limit : the model's limit; the set's own `max_tokens` applies if it is smaller.
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
    flat, sizes, shortened = array("i"), [0], []
    for first in range(0, len(texts), AT_ONCE):  # keeps the Python lists short for a large set
        part = prompts.prompts[first : first + AT_ONCE]
        for prompt, ids in zip(part, bare_tokens(tokenizer, texts[first : first + AT_ONCE]), strict=True):
            if room is not None and len(start) + len(ids) > room:
                ids = _shorten(tokenizer, prompts, prompt, room - len(start), len(start) + len(ids))
                shortened.append(prompt.id)
            flat.extend([*start, *ids])
            sizes.append(len(start) + len(ids))
    return Encoded(
        tokens=np.array(flat, dtype=np.int32),
        starts=np.cumsum(sizes, dtype=np.int64),
        targets=targets,
        shortened=tuple(shortened),
    )


def encode_once(tokenizer: Any, prompts: PromptSet, limit: int | None = None) -> Encoded:
    """Like `encode`, cached on disk: the same texts are tokenised once per tokenizer."""
    return encode_all(tokenizer, [prompts], limit)[0]


def encode_all(tokenizer: Any, sets: Sequence[PromptSet], limit: int | None = None) -> list[Encoded]:
    """Like `encode_once`, for several sets."""
    tokeniser = Tokeniser.of(tokenizer)
    encoded_sets = []
    for prompts in sets:
        path = tokeniser.cache_of(prompts, limit)
        encoded = None if path is None else _read_cache(path)
        if encoded is None:
            encoded = encode(tokenizer, prompts, limit)
            if path is not None:
                _write_cache(path, encoded)
        encoded_sets.append(encoded)
    return encoded_sets


@dataclass(frozen=True, slots=True)
class Tokeniser:
    """A tokenizer, and where its tokens are cached."""

    tokenizer: Any
    identity: list[Any] | None
    folder: Path | None

    @classmethod
    def of(cls, tokenizer: Any) -> Tokeniser:
        return cls(tokenizer, _identity(tokenizer), _cache_folder())

    def cache_of(self, prompts: PromptSet, limit: int | None) -> Path | None:
        """The file in which the tokens of a set are cached, if they can be."""
        if self.identity is None or self.folder is None:
            return None
        return self.folder / f"{_cache_key(self.identity, self.tokenizer, prompts, limit)}.npz"


def _cache_folder() -> Path | None:
    """Return the folder of cached tokens; None without a home folder."""
    try:
        return cache_dir() / "tokens"
    except StoreError:
        return None


def _identity(tokenizer: Any) -> list[Any] | None:
    """Return a hash that identifies a tokenizer; None if it cannot be identified."""
    try:
        special = [tokenizer.bos_token_id, tokenizer.eos_token_id]  # one of them stands for an empty context
        return [content_hash([tokenizer.backend_tokenizer.to_str()]), start_tokens(tokenizer), special]
    except AttributeError:
        return None


def _cache_key(identity: Sequence[Any], tokenizer: Any, prompts: PromptSet, limit: int | None) -> str:
    """Hash everything that determines the tokens."""
    template = str(getattr(tokenizer, "chat_template", "")) if prompts.chat else ""
    cuts = [p.cut for p in prompts.prompts]
    return content_hash([_code(), *identity, template, prompts.hash, cuts, limit])


@cache
def _code() -> str:
    """A hash of the code that makes tokens, so that no other version's are read."""
    return content_hash([(Path(__file__).parent / name).read_text(encoding="utf-8") for name in CODE])


def _read_cache(path: Path) -> Encoded | None:
    try:
        # opened explicitly, because numpy leaves a damaged file open
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as arrays:
            ends = np.cumsum(arrays["target_sizes"])
            targets = tuple(tuple(map(int, part)) for part in np.split(arrays["targets"], ends[:-1]))
            shortened = tuple(map(str, arrays["shortened"]))
            return Encoded(tokens=arrays["tokens"], starts=arrays["starts"], targets=targets, shortened=shortened)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None  # missing or damaged: recomputed


def _write_cache(path: Path, encoded: Encoded) -> None:
    """Cache the tokens, best effort: without a cache everything works, only slower."""
    with contextlib.suppress(StoreError), put(path, durable=False) as aside, aside.open("wb") as handle:
        np.savez(
            handle,
            tokens=encoded.tokens,
            starts=encoded.starts,
            targets=np.array([token for target in encoded.targets for token in target], dtype=np.int64),
            target_sizes=np.array([len(target) for target in encoded.targets], dtype=np.int64),
            shortened=np.array(encoded.shortened, dtype=np.str_),
        )


def most_tokens(prompts: PromptSet, limit: int | None, targets: Sequence[Sequence[int]]) -> int | None:
    """Return how many tokens a prompt may have so that prompt and answer fit."""
    given = [n for n in (limit, prompts.max_tokens) if n is not None]
    return min(given) - max(len(t) for t in targets) + 1 if given else None


def bare_tokens(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Tokenise the texts without start or end tokens."""
    # transformers warns about long texts, which are handled later
    return list(tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"])


def start_tokens(tokenizer: Any) -> list[int]:
    """Return the tokens before a text; tokens after it (some tokenizers add eos) would hide the answer position."""
    bare = list(tokenizer("x", add_special_tokens=False)["input_ids"])
    full = list(tokenizer("x")["input_ids"])
    for at in range(len(full) - len(bare) + 1):
        if full[at : at + len(bare)] == bare:
            return full[:at]
    return []


def wrap(tokenizer: Any, text: str, chat: bool) -> str:
    """Return a text as the model reads it: unchanged, or as a user's turn of the chat template."""
    if not chat:
        return text
    if not getattr(tokenizer, "chat_template", None):
        raise ModelError("the pattern asks for a chat template and the tokenizer has none; set chat = false")
    turn = [{"role": "user", "content": text}]
    try:
        return str(tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True))
    except Exception as error:  # a template is a program from the model's repository; it runs in Jinja's sandbox
        raise ModelError(f"the tokenizer's chat template fails ({first_line(error)}); set chat = false") from None


def answer_tokens(tokenizer: Any, answers: Sequence[str], texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Return the tokens each answer adds to a prompt; refuse answers that change the prompt's own tokens."""
    token_ids = []
    for answer in answers:
        added, changed = joined_tokens(tokenizer, answer, texts)
        if changed is not None:
            raise ModelError(
                f"answer {answer!r} changes the prompt's tokens when joined to it (prompt ends in {changed[-12:]!r});"
                " begin the answer with a space, or end the pattern differently"
            )
        token_ids.append(added)
    if len(set(token_ids)) < len(token_ids):
        raise ModelError(f"answers {list(answers)} have equal tokens; choose answers the tokenizer tells apart")
    return tuple(token_ids)


def joined_tokens(tokenizer: Any, answer: str, texts: Sequence[str]) -> tuple[tuple[int, ...], str | None]:
    """Return the tokens that an answer adds to texts, and the first text for which this fails.

    It fails if joining changes the text's own tokens or adds other tokens. The tokens come from the joined text,
    because an answer alone may be tokenised differently (older Llama tokenizers put a space before every text, so "
    Yes" alone begins with two).
    """
    added: tuple[int, ...] = ()
    together = bare_tokens(tokenizer, [text + answer for text in texts])
    for text, ids, joined in zip(texts, bare_tokens(tokenizer, texts), together, strict=True):
        rest = tuple(joined[len(ids) :])
        if joined[: len(ids)] != ids or not rest or (added and rest != added):
            return added or rest, text
        added = rest
    return added, None


def context_limit(config: Any) -> int | None:
    """Return the model's context length according to its config; None if it has no such limit."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    for name in ("max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx"):
        value = getattr(text, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None


def _shorten(tokenizer: Any, prompts: PromptSet, prompt: Prompt, room: int, length: int) -> list[int]:
    """Return the tokens of the prompt with as much of its field as fits, cut between words where possible."""
    if prompt.cut is None:
        raise DataError(
            f"{prompts.name}: prompt {prompt.id} has {length} tokens, the limit leaves {room}; "
            "name the field that may be shortened in the pattern's truncate, or leave the example out"
        )
    start, end = prompt.cut
    field = prompt.text[start:end]

    def tokens(beginning: str) -> list[int]:
        text = prompt.text[:start] + beginning + prompt.text[end:]
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
    """Return the first `size` characters, without a final partial word if another word precedes it.

    >>> _at_word("one two three", 9)
    'one two'
    """
    beginning = text[:size]
    if size < len(text) and not text[size].isspace() and any(c.isspace() for c in beginning.strip()):
        beginning = beginning[: max(i for i, c in enumerate(beginning) if c.isspace())]
    return beginning.rstrip() if size < len(text) else beginning
