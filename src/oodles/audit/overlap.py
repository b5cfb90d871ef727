"""Find examples that occur twice: within one set, or in a train set and a test set.

Texts are compared unchanged ("exact"), without case, spacing and punctuation ("normalised"), and by the word n-grams
that two examples share ("near"). The search for near pairs is exact: it finds the same pairs as comparing all of them.
Try it::

    python -c "from oodles.audit.overlap import normalise; print(normalise('  Don’t PANIC, it is 5 o’clock! '))"
"""

from __future__ import annotations

import unicodedata
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from oodles.contracts import Example
from oodles.errors import ConfigError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Texts = tuple[str, ...]  # the fields of an example, in the order of their names

Kind = Literal["exact", "normalised", "near"]
Match = tuple[int, Kind, float]  # row of the train set, kind of match, similarity

NEAR = 0.8  # see the notes of `overlaps`, also for the next constant
EACH_FIELD = 0.7
CHUNK = 10_000  # train examples processed together; bounds the memory for any size of the train set
BUDGET = 1 << 19  # array elements expanded at a time
AS_IS = "\0"  # prefix of a text that is not normalised; normalised texts never contain it
LOW = np.int64((1 << 32) - 1)  # two numbers are packed into one: high << 32 | low
SLACK = 1.0 - 1e-12  # because of rounding, filters may keep an extra pair but never drop one; similarity decides


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """Examples of one set that have the same fields."""

    ids: tuple[str, ...]
    kind: Literal["exact", "normalised"]  # exact: all fields are equal character by character
    conflict: bool  # their answers differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A test example and the train example most similar to it."""

    test_set: str
    train_id: str
    test_id: str
    kind: Kind
    similarity: float  # shared n-grams / all n-grams of the two; 1 for exact and normalised
    conflict: bool  # their answers differ


def normalise(text: str) -> str:
    """Return the words of a text without case, spacing, punctuation and symbols, for letters and digits of all scripts.

    Applies Unicode NFKC and case folding, as for identifiers (invisible characters are removed). Every run of other
    characters becomes one space. A combining mark stays with its letter.

    Examples
    --------
    >>> normalise("  It’s  ﬁne: STRASSE, straße & co. ")
    'it s fine strasse strasse co'
    >>> normalise("हिन्दी, עברית!")
    'हिन्दी עברית'
    """
    return " ".join(words(unicodedata.normalize("NFKC", text).casefold()))


def words(text: str, keep: str = "") -> list[str]:
    """Return runs of letters and digits of every script, in NFKC; the characters in `keep` count as letters.

    Examples
    --------
    >>> words("Don't (panic)!"), words("Don't (panic)!", keep="'")
    (['Don', 't', 'panic'], ["Don't", 'panic'])
    """
    spaced = unicodedata.normalize("NFKC", text).translate(_word_characters(keep))
    if spaced.isascii():
        return spaced.split()
    stripped = (_drop_leading_marks(word) for word in unicodedata.normalize("NFKC", spaced).split())
    return [word for word in stripped if word]


def duplicates(examples: Sequence[Example]) -> tuple[Duplicate, ...]:
    """Return groups of examples with the same fields, in the order of their first members.

    Fields are compared after `normalise`. A text without letters and digits is compared unchanged, so that "!!!"
    differs from "???".

    Examples
    --------
    >>> rows = [("a", "It rains.", 0), ("b", "it  rains", 1), ("c", "It snows.", 0)]
    >>> duplicates([Example(id=i, fields={"text": t}, label=str(k), answer=k) for i, t, k in rows])
    (Duplicate(ids=('a', 'b'), kind='normalised', conflict=True),)
    """
    groups: dict[Texts, list[Example]] = {}
    for example in examples:
        groups.setdefault(_comparable(_texts(example)), []).append(example)
    return tuple(_duplicate(group) for group in groups.values() if len(group) > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRows:
    """Two test sets with examples in common."""

    sets: tuple[str, str]
    count: int  # distinct examples in both sets
    sizes: tuple[int, int]  # distinct examples of each set
    same: bool  # both hold the same examples, with the same answers


def shared_rows(tests: Mapping[str, Sequence[Example]]) -> tuple[SharedRows, ...]:
    """Return pairs of test sets that share examples, as `duplicates` compares them.

    Examples
    --------
    >>> rows = [Example(id="a", fields={"text": "It rains."}, label="e", answer=0)]
    >>> shared_rows({"here": rows, "there": rows})
    (SharedRows(sets=('here', 'there'), count=1, sizes=(1, 1), same=True),)
    """
    answers_by_set: dict[str, dict[Texts, set[int]]] = {}
    for name, examples in tests.items():
        own = answers_by_set[name] = {}
        for example in examples:
            own.setdefault(_comparable(_texts(example)), set()).add(example.answer)
    shared = []
    for (a, first), (b, second) in combinations(answers_by_set.items(), 2):
        count = len(first.keys() & second.keys())
        if count:
            sizes = (len(first), len(second))
            shared.append(SharedRows(sets=(a, b), count=count, sizes=sizes, same=first == second))
    return tuple(shared)


def overlaps(
    train: Sequence[Example],
    tests: Mapping[str, Sequence[Example]],
    *,
    near: float = NEAR,
    ngram: int = 3,
    each_field: float = EACH_FIELD,
) -> tuple[Overlap, ...]:
    """Return test examples that are in the train set, exactly or nearly.

    Parameters
    ----------
    train : sequence of Example
    tests : mapping from the name of a test set to its examples
    near : float
        Smallest similarity that is reported, above 0 and at most 1. Similarity is the Jaccard similarity of the two
        examples' sets of word n-grams, words as in `normalise`.
    ngram : int
        Words per n-gram. No n-gram crosses from one field into the next; a field with fewer words is one n-gram.
    each_field : float
        Smallest similarity of every single field of a near pair; 0 asks nothing of single fields. Fields are paired in
        the order of their names, whatever the names are; examples with different numbers of fields are not near.

    Returns
    -------
    tuple of Overlap
        In the order of the test sets and their examples; every test example at most once, with its most similar train
        example (exact before normalised before near; the first in the train set among equals).

    Notes
    -----
    The defaults were chosen by reading pairs of NLI examples. Similarity alone does not distinguish examples that share
    a long premise: inside SNLI's test set, 84% of the pairs at 0.8 or more have different answers, and under one
    premise of RTE "A female rabbit is called a buck" and "... a doe" even reach 1. Hence `each_field`. Pairs that pass
    both limits are nearly the same text; where one word decides the answer, as in PAWS, look at `Overlap.conflict`.
    Texts of a few words are rarely near: one changed word inside a field of fewer than 19 words takes it below 0.7.

    Near pairs are found by prefix filtering [1]_: two sets with Jaccard similarity t or more share one of the ``|x| -
    ceil(t |x|) + 1`` rarest elements of each. The similarity of each candidate is then computed exactly: no pair is
    missed and none is guessed. Only n-grams of the test sets are kept; train examples stream past in chunks.

    References
    ----------
    .. [1] Bayardo, Ma and Srikant (2007), Scaling up all pairs similarity search, WWW.
    """
    if not 0.0 < near <= 1.0:
        raise ConfigError(f"near is {near}, expected a similarity above 0 and at most 1")
    if not 0.0 <= each_field <= 1.0:
        raise ConfigError(f"each_field is {each_field}, expected a similarity from 0 to 1")
    if ngram < 1:
        raise ConfigError(f"ngram is {ngram}, expected at least one word")
    rows = [(name, example) for name, examples in tests.items() for example in examples]
    raw = [_texts(example) for _, example in rows]
    keys = [_comparable(texts) for texts in raw]
    exact = _first_rows(map(_texts, train), set(raw))
    normalised: dict[Texts, int] = {}
    nearest = _Nearest(list(dict.fromkeys(keys)), near, ngram, each_field)
    for chunk in _chunks(train):
        for key in chunk.keys() & nearest.number.keys():
            normalised.setdefault(key, chunk[key])
        nearest.see(chunk)
    matches = []
    for (name, example), texts, key in zip(rows, raw, keys, strict=True):
        match = _best_match(exact.get(texts), normalised.get(key), nearest.get(key))
        if match is not None:
            matches.append(_overlap(name, example, train[match[0]], match))
    return tuple(matches)


# texts


class _WordCharacters(dict[int, int | str | None]):
    """For str.translate: keep letters, digits and marks, remove invisible characters, turn the rest into spaces."""

    def __init__(self, keep: str) -> None:
        super().__init__({ord(character): character for character in keep})

    def __missing__(self, code: int) -> int | str | None:
        category = unicodedata.category(chr(code))
        replacement: int | str | None = code if category[0] in "LNM" else " "
        if category == "Cf" or 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF:
            replacement = None  # direction marks, joiners, variation selectors
        self[code] = replacement
        return replacement


_word_characters = cache(_WordCharacters)  # one table per `keep`, filled as characters occur


def _drop_leading_marks(word: str) -> str:
    """Drop a mark whose base character is not a letter or digit."""
    while word and unicodedata.category(word[0])[0] == "M":
        word = word[1:]
    return word


def _texts(example: Example) -> Texts:
    return tuple(example.fields[name] for name in sorted(example.fields))


def _comparable(texts: Texts) -> Texts:
    """Return normalised texts; a text without letters and digits stays unchanged and is marked."""
    return tuple(normalise(text) or (AS_IS + text if text else "") for text in texts)


def _words(text: str, ngram: int) -> list[str]:
    """Return the words of a comparable text, padded with empty words to at least one n-gram."""
    if not text:
        return []
    parts = [text] if text.startswith(AS_IS) else text.split(" ")
    return parts + [""] * (ngram - len(parts))


# equal texts


def _duplicate(group: Sequence[Example]) -> Duplicate:
    exact = len({_texts(example) for example in group}) == 1
    return Duplicate(
        ids=tuple(example.id for example in group),
        kind="exact" if exact else "normalised",
        conflict=len({example.answer for example in group}) > 1,
    )


def _first_rows(texts: Iterable[Texts], wanted: Set[Texts]) -> dict[Texts, int]:
    """Return where each wanted text occurs first."""
    rows: dict[Texts, int] = {}
    for row, text in enumerate(texts):
        if text in wanted:
            rows.setdefault(text, row)
    return rows


def _chunks(train: Sequence[Example]) -> Iterator[dict[Texts, int]]:
    """Yield the distinct comparable texts of each chunk of the train set, with the row of first occurrence."""
    for start in range(0, len(train), CHUNK):
        chunk: dict[Texts, int] = {}
        for row, example in enumerate(train[start : start + CHUNK], start):
            chunk.setdefault(_comparable(_texts(example)), row)
        yield chunk


def _best_match(exact: int | None, normalised: int | None, near: tuple[int, float] | None) -> Match | None:
    if exact is not None:
        return exact, "exact", 1.0
    if normalised is not None:
        return normalised, "normalised", 1.0
    return None if near is None else (near[0], "near", near[1])


def _overlap(test_set: str, example: Example, like: Example, match: Match) -> Overlap:
    _, kind, similarity = match
    return Overlap(
        test_set=test_set,
        train_id=like.id,
        test_id=example.id,
        kind=kind,
        similarity=similarity,
        conflict=like.answer != example.answer,
    )


# similar texts


class _Nearest:
    """An index of the distinct test texts, and the most similar train example seen so far for each."""

    def __init__(self, texts: Sequence[Texts], near: float, ngram: int, each_field: float) -> None:
        self.number = {text: i for i, text in enumerate(texts)}
        self._texts = texts
        self._near, self._ngram, self._each_field = near, ngram, each_field
        self._vocabulary = _Vocabulary(texts, ngram)
        self._index = _index(self._vocabulary.grams(texts), len(self._vocabulary), near)
        self._row = np.full(len(texts), -1, dtype=np.int64)
        self._similarity = np.zeros(len(texts))

    def see(self, chunk: Mapping[Texts, int]) -> None:
        """Process more of the train set: texts and their rows, which increase from call to call."""
        texts, rows = list(chunk), list(chunk.values())
        grams = self._vocabulary.grams(texts)
        for candidates in _candidates(grams, self._index, self._near):
            pairs, similarity = _verified(candidates, grams, self._index, self._near)
            better = np.flatnonzero(similarity > self._similarity[pairs & LOW])
            for k in better[np.lexsort((pairs[better], -similarity[better]))]:  # most similar first, then first row
                i, j = int(pairs[k] >> 32), int(pairs[k] & LOW)
                if similarity[k] > self._similarity[j] and self._fields_alike(texts[i], self._texts[j]):
                    self._row[j], self._similarity[j] = rows[i], similarity[k]

    def get(self, text: Texts) -> tuple[int, float] | None:
        """Return the row of the train set and the similarity."""
        i = self.number[text]
        return None if self._row[i] < 0 else (int(self._row[i]), float(self._similarity[i]))

    def _fields_alike(self, first: Texts, second: Texts) -> bool:
        if self._each_field == 0.0:
            return True
        return len(first) == len(second) and all(
            _similarity(a, b, self._ngram) >= self._each_field for a, b in zip(first, second, strict=True)
        )


def _similarity(first: str, second: str, ngram: int) -> float:
    """Return the similarity of two fields."""
    if first == second:
        return 1.0
    a, b = _field_grams(first, ngram), _field_grams(second, ngram)
    return len(a & b) / len(a | b)


def _field_grams(text: str, ngram: int) -> set[Texts]:
    parts = _words(text, ngram)
    return {tuple(parts[k : k + ngram]) for k in range(len(parts) - ngram + 1)}


class _Numbers(dict[str, int]):
    """Numbers words in the order in which they first occur."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Grams:
    """The n-grams of some texts, sorted from the rarest within each text."""

    entries: Ints  # text << 32 | n-gram, sorted and distinct; only n-grams that occur in the tests
    starts: Ints  # where the entries of each text begin, and the end
    sizes: Ints  # distinct n-grams of each text, including those that do not occur in the tests

    @property
    def known(self) -> Ints:
        """Number of entries of each text."""
        return np.diff(self.starts)


class _Vocabulary:
    """Numbers for the n-grams of the tests, rarest first; other n-grams get higher numbers."""

    def __init__(self, texts: Collection[Texts], ngram: int) -> None:
        self._ngram = ngram
        self._words = _Numbers()
        self._levels: list[Ints] = []  # for 2, 3, ... words: the sorted pairs (number of the words before, next word)
        owners, numbers = self._spell(texts, learn=True)
        counts = np.bincount(np.unique(owners << 32 | numbers) & LOW)
        self._rank = np.empty(len(counts), dtype=np.int64)
        self._rank[np.argsort(counts, kind="stable")] = np.arange(len(counts))

    def __len__(self) -> int:
        return len(self._rank)

    def grams(self, texts: Collection[Texts]) -> _Grams:
        owners, numbers = self._spell(texts)
        in_vocabulary = numbers < len(self)
        numbers[in_vocabulary] = self._rank[numbers[in_vocabulary]]
        entries = np.unique(owners << 32 | numbers)
        sizes = np.bincount(entries >> 32, minlength=len(texts))
        entries = entries[(entries & LOW) < len(self)]
        starts = np.searchsorted(entries, np.arange(len(texts) + 1, dtype=np.int64) << 32)
        return _Grams(entries=entries, starts=starts, sizes=sizes)

    def _spell(self, texts: Collection[Texts], learn: bool = False) -> tuple[Ints, Ints]:
        """Return every n-gram of the texts: the text it is in, and its number before ranking."""
        flat, lengths, owners = self._flatten(texts)
        counts = np.maximum(lengths - self._ngram + 1, 0)  # n-grams per field
        starts = _ranges(np.cumsum(lengths) - lengths, counts)
        numbers = flat[starts]
        for k in range(1, self._ngram):
            pairs = numbers << 32 | flat[starts + k]
            if learn:
                self._levels.append(np.unique(pairs))
            numbers = _look_up(pairs, self._levels[k - 1])
        return np.repeat(owners, counts), numbers

    def _flatten(self, texts: Collection[Texts]) -> tuple[Ints, Ints, Ints]:
        """Concatenate the numbers of all words; return for each field its number of words and its text."""
        numbers, lengths, owners = array("q"), array("q"), array("q")
        for i, fields in enumerate(texts):
            for text in fields:
                parts = _words(text, self._ngram)
                numbers.extend(map(self._words.__getitem__, parts))
                lengths.append(len(parts))
                owners.append(i)
        return _as_array(numbers), _as_array(lengths), _as_array(owners)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Index:
    """For each n-gram, the test texts that have it among their rarest."""

    grams: _Grams  # of the test texts
    starts: Ints  # where the list of each n-gram begins, and the end
    texts: Ints
    positions: Ints  # position of the n-gram within its text


def _index(grams: _Grams, length: int, near: float) -> _Index:
    at, positions = _prefixes(grams, near)
    numbers = grams.entries[at] & LOW
    order = np.argsort(numbers, kind="stable")
    starts = np.searchsorted(numbers[order], np.arange(length + 1))
    return _Index(grams=grams, starts=starts, texts=grams.entries[at][order] >> 32, positions=positions[order])


def _prefixes(grams: _Grams, near: float) -> tuple[Ints, Ints]:
    """Return the entries of each text of which every similar text must share one, and their positions."""
    prefix = grams.sizes - np.ceil(near * SLACK * grams.sizes).astype(np.int64) + 1
    unknown = grams.sizes - grams.known  # n-grams that do not occur in the tests are the rarest, so they come first
    counts = np.clip(prefix - unknown, 0, grams.known)
    at = _ranges(grams.starts[:-1], counts)
    return at, at - np.repeat(grams.starts[:-1], counts)


def _candidates(train: _Grams, index: _Index, near: float) -> Iterator[Ints]:
    """Return pairs (train text << 32 | test text) that may be similar: all similar ones, and some others."""
    at, positions = _prefixes(train, near)
    numbers, texts = train.entries[at] & LOW, train.entries[at] >> 32
    counts = index.starts[numbers + 1] - index.starts[numbers]
    rest = train.known[texts] - positions - 1  # n-grams of the train text that are still to come
    for part in _parts(counts):
        hits = _ranges(index.starts[numbers[part]], counts[part])
        x, before, after = (np.repeat(values[part], counts[part]) for values in (texts, positions, rest))
        y, y_before = index.texts[hits], index.positions[hits]
        most = np.minimum(before, y_before) + 1 + np.minimum(after, index.grams.sizes[y] - y_before - 1)
        possible = most >= near * SLACK / (1 + near) * (train.sizes[x] + index.grams.sizes[y])
        yield np.unique(x[possible] << 32 | y[possible])


def _verified(pairs: Ints, train: _Grams, index: _Index, near: float) -> tuple[Ints, Floats]:
    """Return the similar pairs with their similarity."""
    tests = index.grams
    counts = train.known[pairs >> 32]
    shared = np.zeros(len(pairs), dtype=np.int64)
    for part in _parts(counts):
        at = _ranges(train.starts[pairs[part] >> 32], counts[part])
        wanted = np.repeat((pairs[part] & LOW) << 32, counts[part]) | (train.entries[at] & LOW)
        present = tests.entries[np.minimum(np.searchsorted(tests.entries, wanted), len(tests.entries) - 1)] == wanted
        shared[part] = np.add.reduceat(present.astype(np.int64), np.cumsum(counts[part]) - counts[part])
    similarity = shared / (train.sizes[pairs >> 32] + tests.sizes[pairs & LOW] - shared)
    return pairs[similarity >= near], similarity[similarity >= near]


# arrays


def _as_array(values: array[int]) -> Ints:
    return np.frombuffer(values, dtype=np.int64) if values else np.zeros(0, dtype=np.int64)


def _look_up(values: Ints, ordered: Ints) -> Ints:
    """Return the index of each value in a sorted array; values that are missing are numbered from its length up."""
    at = np.searchsorted(ordered, values)
    new = at == len(ordered)
    new[~new] = ordered[at[~new]] != values[~new]
    at[new] = len(ordered) + np.unique(values[new], return_inverse=True)[1]
    return at


def _ranges(starts: Ints, counts: Ints) -> Ints:
    """Concatenate ranges: start, start + 1, ..., each with the given count."""
    ends = np.cumsum(counts)
    return np.repeat(starts - ends + counts, counts) + np.arange(ends[-1] if len(ends) else 0)


def _parts(counts: Ints) -> Iterator[slice]:
    """Yield consecutive slices whose counts add up to about the budget at most."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    edges = np.searchsorted(ends, np.arange(BUDGET, total, BUDGET), side="right")
    edges = np.unique(np.concatenate([[0], edges, [len(counts)]]))
    for start, end in pairwise(edges):
        yield slice(int(start), int(end))
