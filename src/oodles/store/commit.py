"""Commit an evaluation, copy it from another run, or supersede it after a repeated training."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np

from oodles.contracts import Predictions, PromptSet, Role
from oodles.disk import put
from oodles.store.folder import RunFolder
from oodles.store.metrics import metrics
from oodles.store.records import records_file, write_records
from oodles.store.scores import Score, append_score, drop_scores, read_scores
from oodles.trouble import disk_errors


def commit(
    folder: RunFolder, step: int, prompts: PromptSet, predictions: Predictions, role: Role, *, shortened: int = 0
) -> Score:
    """Commit one step x test set: write the records, then the line that makes it count."""
    file = folder.records(step, prompts.name)
    if any(score.step == step and score.test_set == prompts.name for score in read_scores(folder)):
        file = file.with_name(f"{prompts.name}-{prompts.hash}.parquet")  # keep older records until this is committed
    checksum = write_records(file, predictions)
    score = replace(
        score_of(step, prompts, predictions, role, shortened=shortened), records=file.name, records_crc=checksum
    )
    append_score(folder.scores, score)
    return score


def score_of(step: int, prompts: PromptSet, predictions: Predictions, role: Role, *, shortened: int = 0) -> Score:
    """Compute the scores of one step x test set, without writing anything."""
    return Score(
        step=step,
        test_set=prompts.name,
        role=role,
        n=len(prompts),
        limit=prompts.limit,
        prompts=prompts.hash,
        shortened=shortened,
        ties=predictions.ties,
        metrics={k: None if np.isnan(v) else v for k, v in metrics(predictions).items()},
    )


def copy_score(donor: RunFolder, folder: RunFolder, score: Score, role: Role) -> Score:
    """Copy an evaluation that is known to be equal, e.g. that of the untrained model at step 0.

    The role is that of the new run: a set can be in-domain for one run and OOD for another.
    """
    source, target = records_file(donor, score), records_file(folder, score)
    with put(target) as aside:
        shutil.copyfile(source, aside)
    own = replace(score, role=role)
    append_score(folder.scores, own)
    return own


def supersede(folder: RunFolder, step: int) -> None:
    """Drop the results of an earlier training from a step on, because a repeated training differs.

    The dropped lines are moved to `superseded.jsonl`. A kill in between leaves lines without an adapter; these are
    compared and dropped again.
    """
    scores = [score for score in read_scores(folder) if score.step >= step]
    with disk_errors(folder.path):
        folder.done.unlink(missing_ok=True)
        for path in folder.adapters:
            if int(path.name) >= step:
                shutil.rmtree(path)
    for score in scores:
        append_score(folder.superseded, score)
    drop_scores(folder, step - 1)
