"""transformers as most people write it: batches of 32 in the data's order, padded to their longest, the whole model."""

from __future__ import annotations

import torch

BATCH_SIZE = 32


def make_batches(tokenizer, texts):
    """Tokenised once, before anything is timed: (indices, input_ids, attention_mask) for each batch."""
    tokenizer.padding_side = "right"
    batches = []
    for start in range(0, len(texts), BATCH_SIZE):
        indices = list(range(start, min(start + BATCH_SIZE, len(texts))))
        part = tokenizer([texts[i] for i in indices], padding=True, return_tensors="pt")
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
