"""The audit: check the data against the suite, and the prompts against the tokenizer, before training.

    oodles check study.toml
    oodles check --suite nli --model smollm2-135m-q4

Findings have stable codes. Errors stop a run unless they are allowed by code; warnings and notes do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oodles.audit import checks
from oodles.audit.checks import CODES, Finding
from oodles.audit.choice_checks import check_choice_tokens, check_choices, shown_prompts
from oodles.audit.facts import PromptFacts, SetFacts, TokenFacts
from oodles.audit.pins import read_pins
from oodles.contracts import DataSet, Draw, Evaluation, Example, ModelSpec, Pattern, Suite, role_of
from oodles.errors import ConfigError, DataError, OodlesError, nearest
from oodles.model.load import load_config, load_tokenizer, resolve_model
from oodles.model.tokens import context_limit
from oodles.suite.choices import chance_of
from oodles.suite.load import fields_of, pattern_for, select_test_sets, shared_patterns
from oodles.suite.patterns import render, shared_field
from oodles.suite.sources import Origin, load_examples, load_origin, set_hash
from oodles.suite.tasks import floats

Say = Callable[[str], None]
CHOICES = "choices"  # the field in which examples with their own choices are compared by them
TRAIN_PROMPTS = 2000  # of a train split that are tokenised when no shots are drawn from it


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """All findings, and the facts about every set."""

    suite: str
    findings: tuple[Finding, ...]
    sets: tuple[SetFacts, ...]

    def errors(self, allow: Sequence[str] = ()) -> tuple[Finding, ...]:
        """Return the errors that are not allowed; refuse codes that cannot be allowed."""
        for code in allow:
            if code not in CODES:
                codes = [name for name, about in CODES.items() if about.allowed and about.severity == "error"]
                raise ConfigError(f"--allow {code}: no such code; {nearest(code, codes)}")
            if not CODES[code].allowed:
                raise ConfigError(f"--allow {code}: cannot be allowed, because {CODES[code].meaning}")
        return tuple(f for f in self.findings if f.severity == "error" and f.code not in allow)

    def counts(self) -> dict[str, int]:
        tally = Counter(f.severity for f in self.findings)
        return {severity: tally[severity] for severity in ("error", "warning", "note")}

    def as_dict(self) -> dict[str, Any]:
        return {
            "suite": self.suite,
            "counts": self.counts(),
            "findings": [f.as_dict() for f in self.findings],
            "sets": [facts.as_dict() for facts in self.sets],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The scope of an audit: a suite, the patterns and models it is used with, and how it is sampled."""

    suite: Suite
    patterns: tuple[Pattern, ...]
    models: tuple[ModelSpec, ...]
    train_sets: tuple[str, ...]
    evaluation: Evaluation
    draws: Mapping[str, tuple[Draw, ...]]  # by train set
    notes: bool  # also run slow checks that only yield notes


def audit_suite(suite: Suite, model: str = "", say: Say = lambda _: None) -> Audit:
    """Audit every set of a suite, unsampled, and its prompts as seen by the model's tokenizer."""
    view = View(
        suite=suite,
        patterns=shared_patterns(suite),
        models=(resolve_model(model),) if model else (),
        train_sets=tuple(suite.train_sets),
        evaluation=Evaluation(),
        draws={},
        notes=True,
    )
    return audit(view, say)


def audit_data(suite: Suite, test_sets: Sequence[str] = ()) -> Audit:
    """Check only the data themselves: labels, counts, pinned rows."""
    findings: list[Finding] = []
    pinned = read_pins(suite)
    for data in select_test_sets(suite, tuple(test_sets)):
        examples = load_examples(suite, data)
        findings += checks.check_labels(data, "test", load_origin(suite, data), examples)
        if data.name in pinned:
            findings += checks.check_pins(data, examples, pinned[data.name])
    return Audit(suite=suite.name, findings=tuple(findings), sets=())


def stop_on_errors(audit: Audit, allow: Sequence[str]) -> None:
    """Raise one line about the errors that are not allowed, if there are any."""
    errors = audit.errors(allow)
    if errors:
        first = errors[0]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        how = f"; --allow {first.code} continues despite it" if CODES[first.code].allowed else ""
        raise DataError(f"audit: {first.where}: {first.text} [{first.code}]{more}; `oodles check` shows all{how}")


def audit(view: View, say: Say) -> Audit:
    findings: list[Finding] = []
    facts: dict[str, SetFacts] = {}
    train: dict[str, tuple[Example, ...]] = {}
    tests: dict[str, tuple[Example, ...]] = {}
    pinned = read_pins(view.suite)
    unpinned: dict[str, Origin] = {}
    for kind, data in _sets(view):
        say(f"{data.name} ({kind})")
        try:
            examples = load_examples(view.suite, data)
        except OodlesError as error:
            findings.append(Finding(code="data-unreadable", where=data.name, text=str(error)))
            continue
        facts[f"{kind} {data.name}"] = _facts(view, kind, data, examples)
        findings += checks.check_labels(data, kind, load_origin(view.suite, data), examples)
        if kind == "test" and data.name in pinned:
            findings += checks.check_pins(data, examples, pinned[data.name])
        if data.name not in pinned and floats(view.suite, data):
            unpinned[data.name] = load_origin(view.suite, data)
        examples = _as_seen(view, data, examples)
        (train if kind == "train" else tests)[data.name] = examples
        findings += checks.check_texts(data, kind, examples)
        if kind == "test" and data.has_choices:
            findings += check_choices(data.name, examples)
        findings += [Finding(code="caveat", where=data.name, text=c) for c in data.caveats if kind == "test"]
        if view.notes and kind == "test" and not data.has_choices:
            used = pattern_for(view.suite, data, view.patterns[0])
            reached, more = checks.check_hypothesis_only(data, examples, shared_field(used, examples))
            facts[f"{kind} {data.name}"] = replace(facts[f"{kind} {data.name}"], shallow=(reached,))
            findings += more
    findings += checks.check_revisions(unpinned)
    findings += checks.check_sets(tests)
    for name, examples in train.items():
        say(f"overlap of {name} (train) with the test sets")
        findings += checks.check_overlap(name, examples, tests, view.draws.get(name, ()))
    for model in view.models or (None,):
        findings += _audit_prompts(view, model, train, tests, facts, say)
    order = {"error": 0, "warning": 1, "note": 2}
    found_order = sorted(_merged(findings), key=lambda f: (order[f.severity], list(CODES).index(f.code)))
    return Audit(suite=view.suite.name, findings=tuple(found_order), sets=tuple(facts.values()))


def _merged(findings: Sequence[Finding]) -> list[Finding]:
    """Merge equal findings about the answers of several sets."""
    places: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        key = (finding.code, finding.text if finding.code.startswith("answer-") else f"{finding.text} {finding.where}")
        places.setdefault(key, []).append(finding.where)
    merged, seen = [], set()
    for finding in findings:
        key = (finding.code, finding.text if finding.code.startswith("answer-") else f"{finding.text} {finding.where}")
        if key not in seen:
            seen.add(key)
            merged.append(replace(finding, where="; ".join(dict.fromkeys(places[key]))))
    return merged


def _as_seen(view: View, data: DataSet, examples: Sequence[Example]) -> tuple[Example, ...]:
    """Keep only the fields that prompts use, so that other columns do not hide duplicates."""
    used: set[str] = {CHOICES}
    for pattern in view.patterns:
        own = pattern_for(view.suite, data, pattern)
        if callable(own.text):
            return tuple(examples)
        used |= set(fields_of(own))
    return tuple(replace(e, fields={k: v for k, v in _with_choices(e).items() if k in used}) for e in examples)


def _with_choices(example: Example) -> Mapping[str, str]:
    """The fields of an example; its own choices as one more, because they tell it from others."""
    return {**example.fields, CHOICES: " | ".join(example.choices)} if example.choices else example.fields


def _sets(view: View) -> list[tuple[checks.Kind, DataSet]]:
    train: list[tuple[checks.Kind, DataSet]] = [("train", view.suite.train_sets[name]) for name in view.train_sets]
    return [*train, *(("test", data) for data in select_test_sets(view.suite, view.evaluation.test_sets))]


def _facts(view: View, kind: str, data: DataSet, examples: Sequence[Example]) -> SetFacts:
    origin = load_origin(view.suite, data)
    return SetFacts(
        name=data.name,
        kind=kind,
        n=len(examples),
        labels=Counter(e.label for e in examples),
        dropped={label: origin.counts.get(label, 0) for label in data.drop},
        chance=round(chance_of([e.answer for e in examples], [len(e.choices) for e in examples if e.choices]), 4),
        hash=set_hash(examples),
        origin=origin.origin,
        revision=origin.revision,
        tags=tuple(data.tags),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """A model's tokenizer, or none if a suite is audited without a model."""

    label: str = ""
    tokenizer: Any = None
    limit: int | None = None  # the model's context length


def _audit_prompts(
    view: View,
    model: ModelSpec | None,
    train: Mapping[str, Sequence[Example]],
    tests: Mapping[str, Sequence[Example]],
    facts: Mapping[str, SetFacts],
    say: Say,
) -> list[Finding]:
    """Check every set, rendered with every pattern and tokenised by one model's tokenizer."""
    findings: list[Finding] = []
    reader = _Reader()
    if model is not None:
        try:
            reader = _Reader(model.label, load_tokenizer(model), context_limit(load_config(model)))
            findings.append(checks.check_padding(reader.tokenizer, view.patterns[0].chat, model.label))
        except OodlesError as error:
            reader = _Reader(model.label)
            findings.append(Finding(code="tokenizer-missing", where=model.label, text=str(error)))
    for name, examples in train.items():
        drawn = {e.id: e for draw in view.draws.get(name, ()) for e in draw.examples}
        shown = list(drawn.values()) or examples[:TRAIN_PROMPTS]
        for pattern in _patterns(view, view.suite.train_sets[name]):
            findings += _audit_rendered(view, pattern, reader, shown, facts[f"train {name}"], say)
    for name, examples in tests.items():
        for pattern in _patterns(view, view.suite.test_sets[name]):
            findings += _audit_rendered(view, pattern, reader, examples, facts[f"test {name}"], say)
    return findings


def _patterns(view: View, data: DataSet) -> list[Pattern]:
    """Return the patterns a set is rendered with."""
    return list({p.name: p for p in (pattern_for(view.suite, data, pattern) for pattern in view.patterns)}.values())


def _audit_rendered(
    view: View, pattern: Pattern, reader: _Reader, examples: Sequence[Example], facts: SetFacts, say: Say
) -> list[Finding]:
    """Yield the problems of one set with one pattern, and add its prompt facts to the set's facts."""
    name, kind = facts.name, facts.kind
    inside = {role_of(name, train_set) == "in_domain" for train_set in view.train_sets}
    sizes = {view.evaluation.limit_in_domain if i else view.evaluation.limit for i in inside or {False}}
    at_most = None if None in sizes or kind == "train" else max(n for n in sizes if n is not None)
    place = f"{name} (train)" if kind == "train" else name
    tokens: TokenFacts | None = None
    try:
        prompts = render(pattern, examples, name, at_most)
        shown = shown_prompts(prompts)
        findings = [] if prompts.has_choices else list(checks.check_spaces(prompts, f"{place}, pattern {pattern.name}"))
        if reader.tokenizer is not None:
            say(f"{place}: tokens of {reader.label}")
            check = check_choice_tokens if prompts.has_choices else checks.check_prompts
            tokens, seen = check(reader.tokenizer, prompts, reader.limit, f"{place}, {reader.label}")
            findings += seen
    except OodlesError as error:
        return [Finding(code="prompt-failed", where=f"{place}, pattern {pattern.name}", text=str(error))]
    entry = PromptFacts(n=len(prompts), hash=prompts.hash, shown=shown, tokens=tokens)
    facts.rendered.setdefault(pattern.name, {})[reader.label] = entry
    return findings
