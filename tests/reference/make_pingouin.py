"""Write pingouin.json: what pingouin 0.7.0 (GPL-3; a test oracle only) answers.

python -m venv oracle && oracle/bin/pip install pingouin==0.7.0 && oracle/bin/python tests/reference/make_pingouin.py
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pingouin
from cases import linear_case


def answer(number: int, method: str) -> float:
    z, y = linear_case(number)
    covariates = [f"z{q}" for q in range(z.shape[1])]
    frame = pd.DataFrame({"a": y[:, 0], "b": y[:, 1], **{name: z[:, q] for q, name in enumerate(covariates)}})
    return float(pingouin.partial_corr(frame, x="a", y="b", covar=covariates, method=method)["r"].iloc[0])


if __name__ == "__main__":
    answers = {
        "pingouin": pingouin.__version__,
        **{method: [answer(number, method) for number in range(40)] for method in ("pearson", "spearman")},
    }
    path = Path(__file__).with_name("pingouin.json")
    path.write_text(json.dumps(answers) + "\n")
    print(f"{path.name}: {len(answers['pearson'])} cases")
