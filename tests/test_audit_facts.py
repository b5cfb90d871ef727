"""What `audit.json` and `oodles check --json` hold of each set."""

from __future__ import annotations

from oodles.audit.facts import PromptFacts, SetFacts, ShownPrompt, TokenFacts

PLAIN = ShownPrompt(text="A?", answer=" Yes")
READ = ShownPrompt(text="A?", answer=" Yes", tokens=("A", "?"), answer_tokens=(" Yes",))


def test_tokens_are_there_only_where_a_tokenizer_was_asked() -> None:
    assert PLAIN.as_dict() == {"text": "A?", "answer": " Yes"}
    assert READ.as_dict() == {"text": "A?", "answer": " Yes", "tokens": ["A", "?"], "answer_tokens": [" Yes"]}
    plain = PromptFacts(n=2, hash="h", shown=(PLAIN,))
    assert plain.as_dict() == {"n": 2, "hash": "h", "shown": [PLAIN.as_dict()]}


def test_a_tokenizer_s_prompts_take_the_place_of_the_plain_ones() -> None:
    tokens = TokenFacts(tokens=4, mean_tokens=2.0, max_tokens=3, shown=(READ,))
    facts = PromptFacts(n=2, hash="h", shown=(PLAIN,), tokens=tokens).as_dict()
    assert facts == {
        "n": 2,
        "hash": "h",
        "shown": [READ.as_dict()],
        "tokens": 4,
        "mean_tokens": 2.0,
        "max_tokens": 3,
    }
    shortened = TokenFacts(tokens=4, mean_tokens=2.0, max_tokens=3, shown=(READ,), shortened=0)
    assert PromptFacts(n=2, hash="h", shown=(), tokens=shortened).as_dict()["shortened"] == 0  # none: not unknown


def test_a_set_has_its_prompts_by_pattern_and_model() -> None:
    prompts = PromptFacts(n=2, hash="h", shown=())
    facts = SetFacts(
        name="away",
        kind="test",
        n=2,
        labels={"e": 2},
        dropped={},
        chance=1.0,
        hash="x",
        origin="away.csv",
        revision=None,
        rendered={"q": {"m": prompts}},
        shallow=(None,),
    )
    assert facts.as_dict() == {
        "set": "away",
        "kind": "test",
        "n": 2,
        "labels": {"e": 2},
        "dropped": {},
        "chance": 1.0,
        "hash": "x",
        "origin": "away.csv",
        "revision": None,
        "rendered": {"q": {"m": prompts.as_dict()}},
        "hypothesis_only": None,
    }
