"""Presets: the study's eight models and smaller relatives, with their hub ids, dtypes and LoRA targets.

    oodles models              # this list
    oodles models opt-6.7b     # one of them
    python -m oodles.model.presets   # the table of docs/models.md

All are base models, not instruct models. Every hub id comes with the public page that states it. OPT's main branches
hold only pickled weights; `revision` names the hub's converted branch where a page shows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from oodles.contracts import Precision

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
OPT = ("q_proj", "k_proj", "v_proj", "out_proj")
LLAMA = ("q_proj", "k_proj", "v_proj", "o_proj")  # also OLMo2 and SmolLM3


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A model known by its label."""

    label: str
    hub: str
    precision: Precision  # dtype it is loaded in
    published: Precision  # the dtype of its files
    targets: tuple[str, ...]  # modules that LoRA adapts
    parameters: int
    source: str  # the public page that names the hub id and its files
    revision: str | None = None  # None: main

    @property
    def file_bytes(self) -> int:
        return weight_bytes(self.parameters, self.published)

    @property
    def weight_bytes(self) -> int:
        return weight_bytes(self.parameters, self.precision)

    @property
    def training_bytes(self) -> int:
        return training_bytes(self.weight_bytes)


def weight_bytes(parameters: int, precision: str) -> int:
    """Return the memory of the weights alone.

    >>> weight_bytes(2_651_596_800, "fp16"), weight_bytes(2_651_596_800, "fp32")
    (5303193600, 10606387200)
    """
    return parameters * BYTES[precision]


def training_bytes(weights: int) -> int:
    """Estimate the memory for LoRA training: a quarter more than the weights, plus 1.5 GB.

    This covers adapter, optimiser and the activations of about 1,000 tokens per batch (16 prompts of 64), at about 34
    bytes per token, layer and hidden unit in half precision, without gradient checkpointing. `oodles run --dry-run`
    estimates with a study's own batches.
    """
    return weights + weights // 4 + 1_500_000_000


def _opt(size: str, parameters: int, source: str, revision: str | None = None) -> Preset:
    return Preset(
        label=f"opt-{size}",
        hub=f"facebook/opt-{size}",
        precision="fp16",
        published="fp16",
        targets=OPT,
        parameters=parameters,
        source=f"https://huggingface.co/facebook/opt-{size}/{source}",
        revision=revision,
    )


def _olmo2(size: str, month: str, parameters: int, commit: str | None) -> Preset:
    hub = f"allenai/OLMo-2-{month}-{size.upper()}"
    return Preset(
        label=f"olmo2-{size}",
        hub=hub,
        precision="bf16",  # the dtype of its instruct models; the base models' files are twice as large
        published="fp32",
        targets=LLAMA,
        parameters=parameters,
        source=f"https://huggingface.co/{hub}/tree/{commit or 'main'}",
        revision=commit,
    )


def _smollm(label: str, hub: str, parameters: int, commit: str) -> Preset:
    return Preset(
        label=label,
        hub=f"HuggingFaceTB/{hub}",
        precision="bf16",
        published="bf16",
        targets=LLAMA,
        parameters=parameters,
        source=f"https://huggingface.co/HuggingFaceTB/{hub}/tree/{commit}",
        revision=commit,
    )


_ALL = (
    # models of the study
    _opt("2.7b", 2_651_596_800, "tree/refs%2Fpr%2F26", "refs/pr/26"),
    _opt("6.7b", 6_658_473_984, "tree/refs%2Fpr%2F31", "refs/pr/31"),
    _opt("13b", 12_853_473_280, "tree/refs%2Fpr%2F28", "refs/pr/28"),
    _opt("30b", 29_974_540_288, "tree/refs%2Fpr%2F5"),
    _olmo2("7b", "1124", 7_298_617_344, "7df9a82518afdecae4e8c026b27adccc8c1f0032"),
    _olmo2("13b", "1124", 13_716_198_400, "3fefddc1bf18a30e1d9b91000271630718f2aa8b"),
    _olmo2("32b", "0325", 32_234_279_936, None),
    _smollm("smollm3-3b", "SmolLM3-3B-Base", 3_075_098_624, "d78a42f79198603e614095753484a04c10c2b940"),
    # smaller relatives
    _opt("125m", 125_239_296, "tree/refs%2Fpr%2F35", "refs/pr/35"),
    _opt("350m", 331_196_416, "discussions/24"),
    _opt("1.3b", 1_315_758_080, "tree/refs%2Fpr%2F25", "refs/pr/25"),
    _olmo2("1b", "0425", 1_484_916_736, "a1847dff35000b4271fa70afc5db10fd29fedbdf"),
    _smollm("smollm2-135m", "SmolLM2-135M", 134_515_008, "93efa2f097d58c2a74874c7e644dbc9b0cee75a2"),
    _smollm("smollm2-360m", "SmolLM2-360M", 361_821_120, "f8027fd0eaeea54caa13c31d31b9fdc459c38b49"),
    _smollm("smollm2-1.7b", "SmolLM2-1.7B", 1_711_376_384, "effd688a12921b4cc83e3312b6feb579f70f9c71"),
)
PRESETS = {preset.label: preset for preset in _ALL}


def preset_of(hub: str) -> Preset | None:
    """Return the preset with this hub id."""
    return next((p for p in _ALL if p.hub == hub), None)


def table() -> str:
    """Return the presets as a Markdown table."""
    head = "| label | hub id | parameters | files | dtype | weights | LoRA training | LoRA targets |"
    return "\n".join([head, "|---|---|---:|---:|---|---:|---:|---|", *map(_row, _ALL)])


def _row(preset: Preset) -> str:
    at = f" at `{preset.revision[:12]}`" if preset.revision else ""
    files, weights, training = map(gigabytes, (preset.file_bytes, preset.weight_bytes, preset.training_bytes))
    cells = [f"`{preset.label}`", f"[{preset.hub}]({preset.source}){at}", f"{preset.parameters:,}", files]
    cells += [preset.precision, weights, training, ", ".join(preset.targets)]
    return f"| {' | '.join(cells)} |"


def gigabytes(size: int) -> str:
    """Format a number of bytes for readers.

    >>> gigabytes(269_030_016), gigabytes(13_316_947_968)
    ('0.27 GB', '13.3 GB')
    """
    return f"{size / 1e9:.{2 if size < 1e9 else 1}f} GB"


if __name__ == "__main__":
    print(table())
