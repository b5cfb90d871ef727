"""Test sets as a run evaluates them: rendered with their pattern, sampled by `limit`, with what their slices need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from oodles.contracts import SHOTS, Evaluation, Example, Pattern, PromptSet, RunSpec, Suite, content_hash, role_of
from oodles.suite.load import pattern_for, select_test_sets
from oodles.suite.patterns import render, shared_field
from oodles.suite.slices import Members, is_slice, members_of, resolve_slice, slice_columns
from oodles.suite.sources import load_examples


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A test set as a run evaluates it, with what its slices need."""

    prompts: PromptSet
    members: Members


def render_sets(
    suite: Suite, pattern: Pattern, in_domain: str, evaluation: Evaluation, shots: Sequence[Example] = ()
) -> tuple[Rendered, ...]:
    """The test sets of a run, rendered, each with its own pattern and limit; its shots last, if they are asked for."""
    sets = []
    for data in select_test_sets(suite, evaluation.test_sets):
        inside = role_of(data.name, in_domain) == "in_domain"
        limit = evaluation.limit_in_domain if inside else evaluation.limit
        examples = load_examples(suite, data)
        used = pattern_for(suite, data, pattern)
        prompts = render(used, examples, data.name, limit)
        item = data.item or shared_field(used, examples)
        sets.append(Rendered(prompts=prompts, members=members_of(prompts, examples, used.name, item)))
    if evaluation.shots and shots:
        prompts = render(pattern, shots, SHOTS)
        sets.append(Rendered(prompts=prompts, members=members_of(prompts, shots, pattern.name)))
    return tuple(sets)


def rendered_hashes(suite: Suite, spec: RunSpec, shots: Sequence[Example]) -> dict[str, str]:
    """The hash of every set that a run evaluates, by name; sets are rendered once for all runs of a loaded suite."""
    key = content_hash([spec.pattern.identity, sampled_alike(spec), asdict(spec.evaluation)])
    if key not in suite.hashes:
        sets = render_sets(suite, spec.pattern, spec.train_set, spec.evaluation)
        suite.hashes[key] = {r.prompts.name: r.prompts.hash for r in sets}
    if not spec.evaluation.shots:
        return suite.hashes[key]
    return {**suite.hashes[key], SHOTS: render(spec.pattern, shots, SHOTS).hash}


def sampled_alike(spec: RunSpec) -> str:
    """The same for runs whose test sets are sampled alike: the train set matters only if its test set has a limit."""
    same = spec.evaluation.limit == spec.evaluation.limit_in_domain
    return "" if same else spec.train_set


def characters(prompts: PromptSet) -> float:
    """The work of scoring a set, in the unit that is known before anything is tokenised."""
    return float(sum(len(p.text) for p in prompts.prompts))


def check_slices(suite: Suite, names: tuple[str, ...]) -> None:
    """A slice that does not exist is an error before anything is trained."""
    for name in filter(is_slice, names):
        examples = load_examples(suite, select_test_sets(suite, (name,))[0])
        resolve_slice(name, slice_columns(examples))
