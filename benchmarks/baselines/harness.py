"""lm-evaluation-harness: the prompts as a multiple-choice task, its HFLM around the model that is loaded already.

Timed is the evaluation of its requests without their tokenisation (which it repeats at every evaluation and we do
once); `Harness.tokenising` holds the seconds of that. It scores both answers from one pass over a prompt, sorts
prompts by length and sends no attention mask.
"""

from __future__ import annotations

import contextlib
import io
import logging
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

BATCH_SIZE = 32  # "auto" tries 64 x 8,192 tokens x 49,152 logits first, which no machine of this size can hold


@dataclass
class Harness:
    """Its model, and its requests in the batches it will make of them."""

    model: Any
    answers: int
    batches: list[tuple[list[int], tuple[int, int], list[Any]]]  # indices of the prompts, rows x width, requests
    tokenising: list[float] = field(default_factory=list)  # seconds, one per call of `score_batches`

    def score_batches(self, batches: list[list[Any]]) -> tuple[np.ndarray, float]:
        """Log-probabilities of the answers, for every prompt of the batches in their order, and the seconds."""
        requests = [request for batch in batches for request in batch]
        inner, seconds = self.model._loglikelihood_tokens, []

        def timed(*given: Any, **named: Any) -> Any:
            start = time.perf_counter()
            found = inner(*given, **named)
            seconds.append(time.perf_counter() - start)
            return found

        self.model._loglikelihood_tokens = timed
        start = time.perf_counter()
        try:
            found = self.model.loglikelihood(requests, disable_tqdm=True)
        finally:
            del self.model._loglikelihood_tokens
        self.tokenising.append(time.perf_counter() - start - sum(seconds))
        return np.array([score for score, _ in found]).reshape(-1, self.answers), sum(seconds)


def load(model: Any, tokenizer: Any, texts: list[str], answers: tuple[str, ...]) -> Harness:
    """The task, its requests and the harness's model; needs `lm_eval`, which `make bench` installs aside."""
    import datasets
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.models.huggingface import HFLM

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    rows = datasets.Dataset.from_dict({"prompt": texts, "gold": [0] * len(texts)})
    config = {
        "task": "prompts",
        "custom_dataset": lambda **_: {"test": rows},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "prompt",
        "doc_to_target": "gold",
        "doc_to_choice": list(answers),
        "target_delimiter": "",
    }
    with contextlib.redirect_stderr(io.StringIO()):  # its progress bars
        task = ConfigurableTask(config=config)
        task.build_all_requests()
    requests: list[list[Any]] = [[] for _ in texts]
    for request in task.instances:
        assert request.args == (texts[request.doc_id], answers[request.idx]), "the task changed a prompt"
        requests[request.doc_id].append(request)
    wrapped = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=BATCH_SIZE)
    return Harness(wrapped, len(answers), _as_it_batches(tokenizer, texts, answers, requests))


def _as_it_batches(tokenizer: Any, texts: list[str], answers: tuple[str, ...], requests: list[list[Any]]) -> Any:
    """The batches it makes: longest first, equal lengths by their tokens; given some of them, it makes the same."""
    tokens = tokenizer([text + answers[0] for text in texts])["input_ids"]
    first = {tuple(ids): i for i, ids in reversed(list(enumerate(tokens)))}  # it scores equal prompts once
    order = sorted(first, key=lambda ids: (-len(ids), ids))
    same: dict[tuple[int, ...], list[int]] = {ids: [] for ids in first}
    for index, ids in enumerate(tokens):
        same[tuple(ids)].append(index)
    batches = []
    for start in range(0, len(order), BATCH_SIZE):
        rows = order[start : start + BATCH_SIZE]
        indices = [index for ids in rows for index in same[ids]]
        shape = (len(rows), len(rows[0]) - 1)  # the answer's token is not sent through the model
        batches.append((indices, shape, [request for index in indices for request in requests[index]]))
    return batches
