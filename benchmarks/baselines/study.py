"""FROZEN. How the study's code scores, as a baseline: change nothing here to make a ratio better or worse.

    python benchmarks/baselines/study.py MODEL_FOLDER PROMPTS.txt      one prompt a line; prints the two logits of each

Every prompt is padded to 128 tokens by the tokenizer, 32 prompts make a batch, in the order of the data, and the whole
model is called: logits of the full vocabulary at all positions. That is what public code of the study's authors does
(its predecessor, commit d382ab1, padding="max_length", max_length=128).

Two things are not copied, because they are mistakes and would make a comparison of the scores meaningless:
- It cuts prompts at 128 tokens, and with them the question. Here a longer prompt keeps its length and its batch is
  padded to the longest.
- It reads the logits at position -1, which with padding on the right is a padding token. Here they are read at the
  last token of the prompt.

It imports torch and, as a script, transformers; nothing of oodles.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

MAX_LENGTH = 128
BATCH_SIZE = 32
ANSWERS = (" Yes", " No")


def make_batches(tokenizer, texts):
    """Tokenised once, before anything is timed: (indices, input_ids, attention_mask) for each batch."""
    tokenizer.padding_side = "right"
    batches = []
    for start in range(0, len(texts), BATCH_SIZE):
        indices = list(range(start, min(start + BATCH_SIZE, len(texts))))
        part = tokenizer([texts[i] for i in indices], padding="max_length", max_length=MAX_LENGTH, truncation=False)
        part = tokenizer.pad(part, padding="longest", return_tensors="pt")  # where one is longer than 128
        batches.append((indices, part["input_ids"], part["attention_mask"]))
    return batches


def score_batches(model, batches, answer_tokens):
    """Logits of the answers' tokens after the last real token, for every prompt of the batches, in their order."""
    found = []
    model.eval()
    with torch.inference_mode():
        for _, input_ids, attention_mask in batches:
            logits = model(input_ids=input_ids, attention_mask=attention_mask).logits
            last = attention_mask.sum(dim=1) - 1
            found.append(logits[torch.arange(len(last)), last][:, list(answer_tokens)].double())
    return torch.cat(found).numpy()


def main(folder, prompts):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    answer_tokens = [tokenizer(answer, add_special_tokens=False)["input_ids"][0] for answer in ANSWERS]
    texts = Path(prompts).read_text().splitlines()
    for row in score_batches(model, make_batches(tokenizer, texts), answer_tokens):
        print(*row)


if __name__ == "__main__":
    main(*sys.argv[1:])
