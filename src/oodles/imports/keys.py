"""Names of metrics, as trackers hold them -> test set and metric.

>>> split_keys(["eval_hans_accuracy", "eval_hans_runtime", "eval/snli_f1", "train/loss", "epoch"])
{'eval_hans_accuracy': ('hans', 'accuracy'), 'eval/snli_f1': ('snli', 'f1')}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from oodles.errors import ConfigError

CANONICAL = {"acc": "accuracy", "em": "exact_match", "roc_auc": "auc", "auroc": "auc"}
METRICS = (
    *("accuracy", "acc", "balanced_accuracy", "acc_norm", "exact_match", "em", "auc", "roc_auc", "auroc"),
    *("f1", "f1_macro", "macro_f1", "f1_micro", "micro_f1", "f1_weighted", "weighted_f1", "precision", "recall"),
    *("mcc", "matthews_correlation", "pearson", "pearsonr", "spearman", "spearmanr", "bleu", "rouge1", "rouge2"),
    *("rougeL", "perplexity", "ppl", "loss", "brier", "ece"),
)
TIMES = ("runtime", "samples_per_second", "steps_per_second", "jit_compilation_time", "model_preparation_time")
NO_SCORES = (*TIMES, "epoch", "step", "global_step", "num_input_tokens_seen", "num_tokens", "entropy")
PREFIX = re.compile(r"(eval|evaluation|test|val|valid|validation|dev)[/_.]")
OTHERS = re.compile(r"(train|training|system|profiling|gpu|hparams?|optim\w*)[/_.]")
SUMMARIES = ("best", "mean", "average", "avg", "overall")  # eval_best_accuracy is no test set's either
SPREADS = ("std", "stderr", "se", "sd", "var", "norm")  # acc_std is no test set
BY_LENGTH = sorted(METRICS, key=len, reverse=True)
UNNAMED = "eval"  # a Trainer's only evaluation set has no name
DEEPEST = 5  # objects in each other
KINDS = {"metric": r"[^/]+?", "test_set": ".+"}


def split_keys(keys: Iterable[str], pattern: str | None = None) -> dict[str, tuple[str, str]]:
    """The test set and the metric of every key that is a score; other keys are not in the answer."""
    keys = list(dict.fromkeys(keys))
    if pattern is not None:
        return _by_pattern(keys, pattern)
    timed = _timed_sets(keys)
    found = {key: split for key in keys if (split := _split(key, timed)) is not None}
    return _told_apart(found)


def canonical(metric: str) -> str:
    """A metric under the name that the long table gives it."""
    return CANONICAL.get(metric, metric)


def by_suffix(name: str) -> tuple[str, str] | None:
    """`hans_acc`, `hans/accuracy` and `acc_hans` -> ('hans', 'accuracy'); None where no metric is named."""
    lower = name.lower()
    for metric in BY_LENGTH:
        for separator in "_/.-: ":
            if lower.endswith(separator + metric) and len(name) > len(metric) + 1:
                return name[: -len(metric) - 1], canonical(metric)
            if lower.startswith(metric + separator) and len(name) > len(metric) + 1:
                rest = name[len(metric) + 1 :]
                return None if rest.lower() in SPREADS else (rest, canonical(metric))
    return None


def flat(
    row: Mapping[str, Any], mark: str, inside: str = "", *, only_scores: bool = False
) -> Iterator[tuple[str, Any]]:
    """What is in a row, objects in it under joined names; with `only_scores` those of evaluations alone.

    >>> dict(flat({"step": 3, "eval": {"hans": {"accuracy": 0.5}}}, "/"))
    {'step': 3, 'eval/hans/accuracy': 0.5}
    """
    for name, value in row.items():
        deeper = isinstance(value, Mapping) and "_type" not in value and inside.count(mark) < DEEPEST  # no media
        if deeper and (inside or not only_scores or PREFIX.match(f"{name}/")):
            yield from flat(value, mark, f"{inside}{name}{mark}", only_scores=only_scores)
        else:
            yield f"{inside}{name}", value


def template(pattern: str, kinds: Mapping[str, str], what: str) -> re.Pattern[str]:
    """A pattern such as `{model}_{seed}` as a regular expression; text between the braces is literal."""
    fields = re.findall(r"\{(\w+)\}", pattern)
    if (
        not fields
        or len(set(fields)) < len(fields)
        or re.sub(r"\{\w+\}", "", pattern).strip("{}") != re.sub(r"\{\w+\}", "", pattern)
    ):
        raise ConfigError(f"{what} '{pattern}': expected fields in braces, each once, e.g. {{{'}_{'.join(kinds)}}}")
    parts = re.split(r"\{(\w+)\}", pattern)
    return re.compile(
        "".join(
            f"(?P<{part}>{kinds.get(part, '.+?')})" if number % 2 else re.escape(part)
            for number, part in enumerate(parts)
        )
    )


def _by_pattern(keys: list[str], pattern: str) -> dict[str, tuple[str, str]]:
    expression = template(pattern, KINDS, "--keys")
    if "test_set" not in expression.groupindex:
        raise ConfigError(f"--keys '{pattern}': no {{test_set}} in it; e.g. --keys 'eval/{{test_set}}_{{metric}}'")
    matches = {key: expression.fullmatch(key) for key in keys}
    named = {key: match.groupdict() for key, match in matches.items() if match}
    return {key: (parts["test_set"], canonical(parts.get("metric") or "accuracy")) for key, parts in named.items()}


def _timed_sets(keys: Iterable[str]) -> dict[str, list[str]]:
    """The sets that a Trainer evaluated, by prefix: it logs a runtime for each, whatever the metrics are called."""
    found: dict[str, set[str]] = {}
    for key in keys:
        prefix = PREFIX.match(key)
        if prefix and key.endswith("_runtime"):
            found.setdefault(prefix[1], set()).add(key[prefix.end() : -len("_runtime")])
    return {prefix: sorted(names, key=len, reverse=True) for prefix, names in found.items()}


def _split(key: str, timed: Mapping[str, list[str]]) -> tuple[str, str] | None:
    prefix = PREFIX.match(key)
    rest = key[prefix.end() :] if prefix else key
    if rest in NO_SCORES or OTHERS.match(key) or any(rest.endswith(f"_{name}") for name in TIMES):
        return None
    for name in timed.get(prefix[1], ()) if prefix else ():
        if name and rest.startswith(f"{name}_"):
            return name, canonical(rest[len(name) + 1 :])
    if rest in METRICS:
        return (UNNAMED if prefix and prefix[1] == "eval" else prefix[1], canonical(rest)) if prefix else None
    found = by_suffix(rest)
    return None if found is not None and found[0].lower() in SUMMARIES else found


def _told_apart(found: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """`eval/snli_accuracy` beside `test/snli_accuracy`: the second is the test set `test/snli`."""
    taken: dict[tuple[str, str], str] = {}
    for key in sorted(found, key=lambda key: not key.startswith("eval")):
        test_set, metric = found[key]
        prefix = PREFIX.match(key)
        if (test_set, metric) in taken:
            test_set = f"{prefix[1]}/{test_set}" if prefix else key
            found[key] = (test_set, metric)
        taken[test_set, metric] = key
    return found
