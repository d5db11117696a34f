"""Cost of a run in addition to the fit itself, and start-up time of the command line.

Run: python benchmarks/runs.py [REPEATS]

Each figure is the minimum over the repeats, each in a separate process, in processor seconds (user
and system), which hardly depend on other work on the machine. ``fit`` is a script that reads the
table, fits the same estimator and saves it; ``hand`` the same with scores, text and facets, which
every run has; ``run`` is that as a run, with its log and its checkpoints; ``all`` a run with draws,
predictions and report as well.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

EXAMPLES = Path(__file__).parents[1] / "examples"
BARE = ["--set", "report=false", "--set", "output.draws=false", "--set", "predictions=false"]
FIT = """
import sys
from bayestree.runs.rows import read_rows
from bayestree.runs.schema import read_run
file = read_run(sys.argv[1])
rows = read_rows(file)
estimator = file.estimator(rows.task)
estimator.fit(rows.X, rows.y, rows.weights).save(sys.argv[2])
"""
HAND = (
    FIT
    + """
import bayestree
estimator.score(rows.X_held, rows.y_held)
bayestree.export_text(estimator)
estimator.polytope_size().to_frame().to_csv(sys.argv[2] + ".csv")
"""
)
WIDE = """
[data]
path = "wide.csv"
target = "class"

[model]
card = "cpt"
max_depth = 6

[inference]
card = "svi"
epochs = 20
"""


def seconds(*words: str) -> float:
    """Processor seconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    subprocess.run([sys.executable, *words], check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def wide(folder: Path) -> Path:
    """A run of 20,000 rows of 16 columns, 6 classes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 16))
    y = np.abs(X[:, :3]).argmax(axis=1) + 3 * (X[:, 3] + X[:, 4] > 0)
    frame = pd.DataFrame(X.round(4), columns=[f"x{i}" for i in range(16)])
    frame.assign(**{"class": [f"c{label}" for label in y]}).to_csv(folder / "wide.csv", index=False)
    (folder / "wide.toml").write_text(WIDE)
    return folder / "wide.toml"


def row(file: Path, folder: Path, repeats: int) -> str:
    out = ["--out", str(folder / "out"), "--force", "--quiet"]
    run = ["-m", "bayestree.cli", "run", str(file), *out]
    model = str(folder / "model.safetensors")
    kinds = {
        "fit": ["-c", FIT, str(file), model],
        "hand": ["-c", HAND, str(file), model],
        "run": [*run, *BARE],
        "all": run,
    }
    least = {name: min(seconds(*words) for _ in range(repeats)) for name, words in kinds.items()}
    pairs = [("run", "hand"), ("run", "fit"), ("all", "fit")]
    ratios = [least[one] / least[other] for one, other in pairs]
    figures = [f"{value:.1f}" for value in least.values()] + [f"{ratio:.2f}" for ratio in ratios]
    return " | ".join([f"| {file.stem}", *figures]) + " |"


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [EXAMPLES / "tumours.toml", EXAMPLES / "wines.toml", wide(folder)]
        print(
            "| run | fit, s | hand, s | run, s | all, s | run / hand | run / fit | all / fit |\n"
            "|---|---|---|---|---|---|---|---|"
        )
        for file in files:
            print(row(file, folder, repeats), flush=True)
    starts = {"--help": ["-m", "bayestree.cli", "--help"], "import torch": ["-c", "import torch"]}
    for name, words in starts.items():
        print(f"{name}: {min(seconds(*words) for _ in range(5)):.2f} s")


if __name__ == "__main__":
    main()
