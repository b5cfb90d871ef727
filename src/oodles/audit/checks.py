"""The individual checks of the audit. Each checks one thing and yields findings; `audit.py` calls them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from oodles.audit import overlap, pins
from oodles.audit.facts import ShownPrompt, TokenFacts
from oodles.contracts import DataSet, Draw, Example, PromptSet
from oodles.errors import OodlesError
from oodles.model.tokens import encode, joined_tokens, most_tokens, start_tokens, wrap
from oodles.suite.choices import chance_of
from oodles.suite.sources import Origin

Severity = Literal["error", "warning", "note"]
Kind = Literal["train", "test"]
LISTED = 10  # items listed with a finding; --json has them all


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """The definition of a code. Codes are stable: scripts and `--allow` use them."""

    severity: Severity
    meaning: str
    allowed: bool = True  # whether --allow can ignore it


CODES: dict[str, Code] = {
    "data-unreadable": Code(
        severity="error", meaning="a set cannot be read, or a label is neither mapped nor dropped", allowed=False
    ),
    "label-names": Code(severity="error", meaning="the label names in the file differ from those in the suite"),
    "label-differs": Code(severity="error", meaning="rows have the pinned text but another answer: swapped labels"),
    "count-differs": Code(severity="error", meaning="the label counts of a test set differ from the expected counts"),
    "kept-differs": Code(severity="error", meaning="after dropping labels, more or fewer rows are left than pinned"),
    "shots-in-test": Code(severity="error", meaning="a drawn shot is in a test set, up to case, spacing, punctuation"),
    "same-rows": Code(severity="error", meaning="two test sets hold the same rows: they are one set by two names"),
    "answer-space": Code(severity="error", meaning="between prompt and answer there is no space, or there are two"),
    "answer-joins": Code(severity="error", meaning="joining an answer changes the tokens of the prompt"),
    "answer-same": Code(severity="error", meaning="two answers have the same tokens", allowed=False),
    "prompt-long": Code(
        severity="error", meaning="a prompt exceeds the model's limit and may not be shortened", allowed=False
    ),
    "prompt-failed": Code(severity="error", meaning="a set cannot be rendered or tokenised", allowed=False),
    "label-absent": Code(severity="warning", meaning="a mapped label does not occur"),
    "one-answer": Code(severity="warning", meaning="only one answer is ever right"),
    "chance-differs": Code(severity="warning", meaning="the suite's chance level is not the data's"),
    "rows-differ": Code(severity="warning", meaning="rows differ from the copy that the suite was made with"),
    "train-differs": Code(severity="warning", meaning="a train set's counts differ from the published: e.g. a sample"),
    "field-empty": Code(severity="warning", meaning="a field that a pattern uses is empty"),
    "text-damaged": Code(severity="warning", meaning="texts hold U+FFFD or NUL, as left by a wrong decoding"),
    "duplicate": Code(severity="warning", meaning="examples occur more than once, up to case, spacing, punctuation"),
    "duplicate-conflict": Code(severity="warning", meaning="the same example has different right answers"),
    "rows-shared": Code(severity="warning", meaning="two test sets have rows in common, which correlates their scores"),
    "train-in-test": Code(severity="warning", meaning="train examples are in a test set; harmless unless drawn"),
    "train-near-test": Code(severity="warning", meaning="train examples are nearly a test example (word n-grams)"),
    "shots-near-test": Code(severity="warning", meaning="a drawn shot is nearly a test example (word n-grams)"),
    "answer-tokens": Code(severity="warning", meaning="an answer has several tokens: its score sums over them"),
    "prompt-shortened": Code(severity="warning", meaning="prompts over the limit lose the end of one field"),
    "choice-length": Code(severity="warning", meaning="the lengths of an example's choices give the right one away"),
    "choice-position": Code(
        severity="warning", meaning="the right choice is at one position more often than by chance"
    ),
    "choice-same": Code(severity="warning", meaning="choices of one example are equal, up to case and spacing"),
    "choice-told": Code(severity="warning", meaning="a prompt's examples have its own question among them, answered"),
    "choice-joins": Code(severity="warning", meaning="a choice changes the tokens of its context when joined to it"),
    "tokenizer-missing": Code(severity="warning", meaning="no tokenizer: answers, lengths and tokens were not checked"),
    "balance": Code(severity="note", meaning="how often each answer is right, and the best constant answer"),
    "hypothesis-only": Code(severity="note", meaning="what a bag of words reaches without the shared field"),
    "task-unpinned": Code(severity="note", meaning="tasks whose data may change on the hub between two days"),
    "padding": Code(severity="note", meaning="padding side and start tokens, as the model will see them"),
    "caveat": Code(severity="note", meaning="what the suite says of a set"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A single finding of the audit."""

    code: str
    where: str  # a set, a model, or both
    text: str
    items: tuple[str, ...] = ()  # affected rows or pairs, if any

    @property
    def severity(self) -> Severity:
        return CODES[self.code].severity

    def as_dict(self) -> dict[str, Any]:
        return {"severity": self.severity, **dataclasses.asdict(self)}


# the data


def check_labels(data: DataSet, kind: Kind, origin: Origin, examples: Sequence[Example]) -> Iterator[Finding]:
    """Check names, counts and balance of the labels."""
    where = _place(data, kind)
    wrong = [
        f"label {raw} is '{origin.class_names[int(raw)]}' in the file, '{name}' in the suite"
        for raw, name in data.label_names.items()
        if origin.class_names and raw.isdigit() and not _same_name(origin.class_names, int(raw), name)
    ]
    if wrong:
        yield Finding(code="label-names", where=where, text=wrong[0], items=tuple(wrong))
    absent = [label for label in data.labels if not origin.counts.get(label)]
    if absent:
        yield Finding(code="label-absent", where=where, text=f"no row is labelled '{absent[0]}'", items=tuple(absent))
    differ = [
        f"{label}: {origin.counts.get(label, 0)} rows, expected {expected}"
        for label, expected in data.expect.items()
        if origin.counts.get(label, 0) != expected
    ]
    if differ:
        code = "count-differs" if kind == "test" else "train-differs"
        yield Finding(code=code, where=where, text="; ".join(differ))
    yield from _check_balance(data, kind, examples)


def _same_name(names: Sequence[str], index: int, name: str) -> bool:
    """Compare label names without case and punctuation; an unnamed or numbered class matches any name."""
    if index >= len(names) or names[index] == str(index):
        return True
    return overlap.normalise(names[index]) == overlap.normalise(name)


def _check_balance(data: DataSet, kind: Kind, examples: Sequence[Example]) -> Iterator[Finding]:
    where, gold = _place(data, kind), Counter(e.answer for e in examples)
    chance = chance_of([e.answer for e in examples], [len(e.choices) for e in examples if e.choices])
    if len(gold) == 1:
        yield Finding(code="one-answer", where=where, text=f"answer {next(iter(gold))} is right for every example")
    if kind == "test" and data.chance is not None and abs(data.chance - chance) > 5e-4:
        text = f"chance is {data.chance} in the suite; the best constant answer reaches {chance:.4f}"
        yield Finding(code="chance-differs", where=where, text=text)
    labels = Counter(e.label for e in examples)
    shares = ", ".join(f"{label} {count / len(examples):.1%}" for label, count in labels.most_common())
    yield Finding(code="balance", where=where, text=f"{shares}; chance {chance:.3f}")


def check_revisions(tasks: Mapping[str, Origin]) -> Iterator[Finding]:
    """Tell which tasks are taken from the hub as they are that day."""
    if tasks:
        known = [f"{name} {origin.revision}" for name, origin in tasks.items() if origin.revision]
        told = f"; today's commits: {', '.join(known)}" if known else ""
        text = f"no revision is named, so another day may bring other rows; keep a copy with oodles fetch --to{told}"
        yield Finding(code="task-unpinned", where=", ".join(tasks), text=text)


def check_pins(data: DataSet, examples: Sequence[Example], pinned: pins.Pins) -> Iterator[Finding]:
    """Compare rows with their pinned hashes."""
    difference = pins.compare(examples, pinned)
    rows = {n: examples[n - 1] for n in (*difference.relabelled, *difference.added)}
    shown = {n: f"row {n} (id {e.id}): {_short(e, 300)} -> {e.label}" for n, e in rows.items()}
    if difference.relabelled:
        yield Finding(
            code="label-differs",
            where=data.name,
            text=f"{len(difference.relabelled)} of {len(examples)} rows have the pinned text but another answer",
            items=tuple(shown[n] for n in difference.relabelled),
        )
    if len(examples) != len(pinned):
        text = (
            f"{len(examples)} rows are kept, {len(pinned)} in the suite's copy; is a label kept that is to be dropped?"
        )
        yield Finding(code="kept-differs", where=data.name, text=text)
    if difference.added or difference.missing:
        yield Finding(
            code="rows-differ",
            where=data.name,
            text=f"{_many(len(difference.added), 'row is', 'rows are')} not in the suite's copy,"
            f" {_many(difference.missing, 'of its rows is', 'of its rows are')} missing",
            items=tuple(shown[n] for n in difference.added),
        )


def check_texts(data: DataSet, kind: Kind, examples: Sequence[Example]) -> Iterator[Finding]:
    """Find empty and damaged texts, and duplicates."""
    where = _place(data, kind)
    empty = [f"id {e.id}: {name}" for e in examples for name, text in e.fields.items() if not text.strip()]
    if empty:
        yield Finding(code="field-empty", where=where, text=f"{len(empty)} empty fields", items=tuple(empty))
    damaged = [
        f"id {e.id}: {name}: {_around(text)}"
        for e in examples
        for name, text in e.fields.items()
        if "\ufffd" in text or "\x00" in text
    ]
    if damaged:
        text = f"{len(damaged)} texts hold U+FFFD or NUL"
        yield Finding(code="text-damaged", where=where, text=text, items=tuple(damaged))
    groups = overlap.duplicates(examples)
    conflicts = [g for g in groups if g.conflict]
    if groups:
        exact = sum(g.kind == "exact" for g in groups)
        yield Finding(
            code="duplicate",
            where=where,
            text=f"{_many(len(groups), 'example occurs', 'examples occur')} more than once ({exact} exactly,"
            f" {len(groups) - exact} up to case, spacing and punctuation)",
            items=tuple(f"ids {', '.join(g.ids)} ({g.kind})" for g in groups),
        )
    if conflicts:
        by_id = {e.id: e for e in examples}
        yield Finding(
            code="duplicate-conflict",
            where=where,
            text=f"{_many(len(conflicts), 'example occurs', 'examples occur')} with different right answers",
            items=tuple(f"ids {', '.join(g.ids)}: {_short(by_id[g.ids[0]])}" for g in conflicts),
        )


def check_sets(tests: Mapping[str, Sequence[Example]]) -> Iterator[Finding]:
    """Find test sets that share examples, which makes their correlation partly one of a set with itself."""
    for shared in overlap.shared_rows(tests):
        a, b = shared.sets
        if shared.same:
            text = f"the {shared.count} examples of {a} are those of {b}, with the same answers"
            yield Finding(code="same-rows", where=f"{a}, {b}", text=text)
        else:
            are = _many(shared.count, "example is", "examples are")
            text = f"{are} in both: {shared.sizes[0]} different ones in {a}, {shared.sizes[1]} in {b}"
            yield Finding(code="rows-shared", where=f"{a}, {b}", text=text)


def check_overlap(
    train_set: str, train: Sequence[Example], tests: Mapping[str, Sequence[Example]], draws: Sequence[Draw]
) -> Iterator[Finding]:
    """Find train examples that are in the test sets, exactly or nearly; drawn shots are reported separately."""
    drawn: dict[str, list[str]] = {}
    for draw in draws:
        for example in draw.examples:
            drawn.setdefault(example.id, []).append(f"{draw.shots} shots, data seed {draw.data_seed}")
    by_id = {e.id: e for e in train}
    shots = [by_id[identity] for identity in drawn]
    in_split = _overlap_findings(train_set, "train", "in the train split", by_id, overlap.overlaps(train, tests))
    yield from (finding for finding, _ in in_split)
    among = _overlap_findings(train_set, "shots", "among the drawn shots", by_id, overlap.overlaps(shots, tests))
    for finding, ids in among:
        hit = dict.fromkeys(origin for i, origins in drawn.items() if i in ids for origin in origins)
        yield dataclasses.replace(finding, text=f"{finding.text} ({'; '.join(list(hit)[:3])})")


def _overlap_findings(
    train_set: str,
    prefix: str,
    place: str,
    by_id: Mapping[str, Example],
    overlaps: Sequence[overlap.Overlap],
) -> Iterator[tuple[Finding, set[str]]]:
    """Yield findings, each with the ids of its train examples."""
    for name in dict.fromkeys(o.test_set for o in overlaps):
        for near in (False, True):
            pairs = sorted(
                (o for o in overlaps if o.test_set == name and (o.kind == "near") == near), key=lambda o: -o.similarity
            )
            if pairs:
                finding = Finding(
                    code=f"{prefix}-near-test" if near else f"{prefix}-in-test",
                    where=f"{train_set} (train), {name}",
                    text=f"{_many(len(pairs), f'example of {name} is', f'examples of {name} are')}"
                    f" {'nearly ' if near else ''}{place}{_conflicts(pairs)}",
                    items=tuple(_pair_line(o, by_id[o.train_id]) for o in pairs),
                )
                yield finding, {o.train_id for o in pairs}


def _conflicts(pairs: Sequence[overlap.Overlap]) -> str:
    other = sum(pair.conflict for pair in pairs)
    return f", {other} with another answer" if other else ""


def _pair_line(pair: overlap.Overlap, train: Example) -> str:
    how = pair.kind if pair.kind != "near" else f"near, {pair.similarity:.2f}"
    how += ", another answer" if pair.conflict else ""
    return f"train id {pair.train_id}, test id {pair.test_id} ({how}): {_short(train)}"


def check_hypothesis_only(
    data: DataSet, examples: Sequence[Example], shared: str
) -> tuple[float | None, tuple[Finding, ...]]:
    """Measure how much the fields other than the shared one reveal; nothing if there is no other field."""
    from oodles.audit.baseline import partial_input_baseline  # loads scipy

    others = [name for name in examples[0].fields if name != shared]
    if not others or shared not in examples[0].fields:
        return None, ()
    texts = [" ".join(e.fields.get(name, "") for name in others) for e in examples]
    gold = [e.answer for e in examples]
    premises = [e.fields.get(shared, "") for e in examples]
    # keep what repeats most in one fold: a hypothesis seen in training would be memorised
    groups = premises if len(set(premises)) <= len(set(texts)) else texts
    reached = partial_input_baseline(texts, gold, groups)
    if reached != reached:
        return None, ()
    chance = max(Counter(gold).values()) / len(gold)
    text = f"a bag of words of {', '.join(others)} alone reaches {reached:.3f}; chance {chance:.3f}"
    return reached, (Finding(code="hypothesis-only", where=data.name, text=text),)


# the prompts, as a tokenizer sees them


def check_spaces(prompts: PromptSet, where: str) -> Iterator[Finding]:
    """Check that exactly one space separates text and answer; otherwise the model sees an unusual token."""
    end = prompts.prompts[0].text[-8:]
    for answer in prompts.answers:
        letter, bare = answer[0], answer.lstrip()
        if prompts.chat:
            if letter.isspace():
                text = f"answer {answer!r} begins a turn of a chat with a space; write {bare!r}"
                yield Finding(code="answer-space", where=where, text=text)
        elif end[-1:].isspace() and letter.isspace():
            text = f"answer {answer!r} follows {end!r}: two spaces; write {bare!r}, or end the text without one"
            yield Finding(code="answer-space", where=where, text=text)
        elif not end[-1:].isspace() and letter.isascii() and letter.isalpha():
            text = f"answer {answer!r} follows {end!r} without a space; write {' ' + answer!r}"
            yield Finding(code="answer-space", where=where, text=text)


def check_answers(tokenizer: Any, prompts: PromptSet, where: str) -> Iterator[Finding]:
    """Find answers of several tokens, of equal tokens, and answers that change the tokens of the prompt."""
    step = max(1, len(prompts.prompts) // 200)
    texts = [wrap(tokenizer, p.text, prompts.chat) for p in prompts.prompts[::step]]
    joined = [joined_tokens(tokenizer, answer, texts) for answer in prompts.answers]
    for answer, (ids, changed) in zip(prompts.answers, joined, strict=True):
        if changed is None and len(ids) != 1:
            pieces = " ".join(map(repr, tokenizer.convert_ids_to_tokens(list(ids))))
            text = f"answer {answer!r} has {len(ids)} tokens: {pieces}"
            yield Finding(code="answer-tokens", where=where, text=text)
    whole = [ids for ids, changed in joined if changed is None]
    if len(set(whole)) < len(whole):
        yield Finding(code="answer-same", where=where, text=f"two of {list(prompts.answers)} have the same tokens")
    for answer, (_, changed) in zip(prompts.answers, joined, strict=True):
        if changed is not None:
            text = f"answer {answer!r} changes the prompt's tokens when joined to {changed[-16:]!r}"
            yield Finding(code="answer-joins", where=where, text=text)


def check_padding(tokenizer: Any, chat: bool, where: str) -> Finding:
    """Report the start tokens and the padding side."""
    start = [] if chat else tokenizer.convert_ids_to_tokens(start_tokens(tokenizer))
    before = f"{' '.join(start)} is put before every prompt" if start else "nothing is put before a prompt (no BOS)"
    side = getattr(tokenizer, "padding_side", "right")
    text = f"{before}; the tokenizer pads on the {side}, oodles on the right: answers are read at the last real token"
    return Finding(code="padding", where=where, text=text)


def check_prompts(
    tokenizer: Any, prompts: PromptSet, limit: int | None, where: str
) -> tuple[TokenFacts | None, list[Finding]]:
    """Tokenise a set as scoring does; return its facts and findings."""
    findings = list(check_answers(tokenizer, prompts, where))
    if any(f.severity == "error" for f in findings):
        return None, findings
    whole = encode(tokenizer, dataclasses.replace(prompts, max_tokens=None))
    lengths = [int(n) for n in whole.lengths]
    first_two = [whole.tokens[a:b].tolist() for a, b in pairwise(whole.starts[: min(2, len(lengths)) + 1])]
    facts = TokenFacts(
        tokens=sum(lengths),
        mean_tokens=round(sum(lengths) / len(lengths), 1),
        max_tokens=max(lengths),
        shown=tuple(
            ShownPrompt(
                text=p.text,
                answer=prompts.answers[p.gold],
                tokens=tuple(tokenizer.convert_ids_to_tokens(ids)),
                answer_tokens=tuple(tokenizer.convert_ids_to_tokens(list(whole.targets[p.gold]))),
            )
            for p, ids in zip(prompts.prompts[:2], first_two, strict=True)
        ),
    )
    targets = whole.targets
    del whole
    at_most = most_tokens(prompts, limit, targets)
    if at_most is None or max(lengths) <= at_most:
        return dataclasses.replace(facts, shortened=0), findings
    over = [p for p, size in zip(prompts.prompts, lengths, strict=True) if size > at_most]
    try:
        shortened = encode(tokenizer, dataclasses.replace(prompts, prompts=tuple(over)), limit).shortened
    except OodlesError as error:
        sizes = dict(zip((p.id for p in prompts.prompts), lengths, strict=True))
        items = tuple(f"id {p.id}: {sizes[p.id]} tokens" for p in over)
        text = f"{len(over)} prompts have more than {at_most} tokens; {error}"
        return facts, [*findings, Finding(code="prompt-long", where=where, text=text, items=items)]
    text = f"{len(shortened)} of {len(prompts)} prompts have more than {at_most} tokens and are shortened"
    finding = Finding(code="prompt-shortened", where=where, text=text, items=tuple(f"id {i}" for i in shortened))
    return dataclasses.replace(facts, shortened=len(shortened)), [*findings, finding]


def _many(count: int, singular: str, plural: str) -> str:
    return f"{count} {singular if count == 1 else plural}"


def _place(data: DataSet, kind: Kind) -> str:
    return f"{data.name} (train)" if kind == "train" else data.name


def _short(example: Example, most: int = 90) -> str:
    text = " | ".join(example.fields.values())
    return text if len(text) <= most else text[: most - 3] + "..."


def _around(text: str) -> str:
    at = min(i for i in (text.find("\ufffd"), text.find("\x00")) if i >= 0)
    return repr(text[max(0, at - 15) : at + 15])
