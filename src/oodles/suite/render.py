"""Render the test sets of a run: apply the pattern, sample by `limit`, and collect the slice data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from oodles.contracts import SHOTS, DataSet, Evaluation, Example, Pattern, PromptSet, RunSpec, Suite, role_of
from oodles.suite.load import pattern_for, select_test_sets
from oodles.suite.patterns import render, shared_field
from oodles.suite.slices import Members, is_slice, members_of, resolve_slice, slice_columns
from oodles.suite.sources import load_examples


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A rendered test set of a run, with the data for its slices."""

    prompts: PromptSet
    members: Members

    @property
    def hash(self) -> str:
        """Hash of the prompts."""
        return self.members.prompts


@dataclass(frozen=True, slots=True)
class Renderer:
    """Renders the test sets of a suite once per pattern and limit; runs share equal sets."""

    suite: Suite
    kept: dict[tuple[str, Pattern, int | None], Rendered] = field(default_factory=dict, compare=False, repr=False)

    def sets(
        self, pattern: Pattern, in_domain: str, evaluation: Evaluation, shots: Sequence[Example] = ()
    ) -> tuple[Rendered, ...]:
        """Return the test sets of a run, each with its pattern and limit; the shots come last, if requested."""
        sets = []
        for data in select_test_sets(self.suite, evaluation.test_sets):
            inside = role_of(data.name, in_domain) == "in_domain"
            limit = evaluation.limit_in_domain if inside else evaluation.limit
            sets.append(self._set(data, pattern_for(self.suite, data, pattern), limit))
        if evaluation.shots and shots:
            prompts = render(pattern, shots, SHOTS)
            sets.append(Rendered(prompts=prompts, members=members_of(prompts, shots, pattern.name)))
        return tuple(sets)

    def _set(self, data: DataSet, pattern: Pattern, limit: int | None) -> Rendered:
        key = (data.name, pattern, limit)
        if key not in self.kept:
            examples = load_examples(self.suite, data)
            prompts = render(pattern, examples, data.name, limit)
            item = data.item or shared_field(pattern, examples)
            self.kept[key] = Rendered(prompts=prompts, members=members_of(prompts, examples, pattern.name, item))
        return self.kept[key]


def render_sets(suite: Suite, pattern: Pattern, in_domain: str, evaluation: Evaluation) -> tuple[Rendered, ...]:
    """Render the test sets of a single run, without sharing."""
    return Renderer(suite).sets(pattern, in_domain, evaluation)


def sampled_alike(spec: RunSpec) -> str:
    """Return a key that is equal for runs with equally sampled test sets.

    The train set matters only if the limits differ for in-domain and OOD sets.
    """
    same = spec.evaluation.limit == spec.evaluation.limit_in_domain
    return "" if same else spec.train_set


def characters(prompts: PromptSet) -> float:
    """Return the work of scoring a set in characters, which are known before tokenisation."""
    own = sum(len(c.context) + len(c.continuation) for p in prompts.prompts for c in p.choices)
    return float(own or sum(len(p.text) for p in prompts.prompts))


def check_slices(suite: Suite, names: tuple[str, ...]) -> None:
    """Refuse slices that do not exist, before anything is trained."""
    for name in filter(is_slice, names):
        examples = load_examples(suite, select_test_sets(suite, (name,))[0])
        resolve_slice(name, slice_columns(examples))
