"""Overhead of a sweep: in one process, in two processes, and on a cluster of two workers.

python benchmarks/sweeps.py [--points 24] [--epochs 40]
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from distributed import Client

from bayestree.runs.rows import read_rows
from bayestree.runs.sweep import fit_and_score, folds_of, sweep
from bayestree.runs.sweep_file import read_sweep

DATA = Path(__file__).parents[1] / "examples" / "data" / "tumours.csv"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=40)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        alone = timed("fits in a loop", lambda: loop(written(place / "loop", asked)))
        times = {
            "sweep, 1 process": timed(
                "1 process", lambda: sweep(written(place / "one", asked), n_jobs=1)
            ),
            "sweep, 2 processes": timed(
                "2 processes", lambda: sweep(written(place / "two", asked), n_jobs=2)
            ),
            "sweep, Dask, 2 workers": on_cluster(place, asked),
        }
    print("| | seconds | of the loop |\n|---|---|---|")
    print(f"| {asked.points} fits in a loop | {alone:.1f} | 1 |")
    for what, seconds in times.items():
        print(f"| {what} | {seconds:.1f} | {seconds / alone:.2f} |")


def written(folder, asked):
    folder.mkdir()
    (folder / "run.toml").write_text(
        f'[data]\npath = "{DATA}"\ntarget = "diagnosis"\n'
        f'[model]\ncard = "cpt"\nmax_depth = 2\n[inference]\ncard = "map"\nepochs = {asked.epochs}'
    )
    seeds = list(range(asked.points // 6))
    (folder / "sweep.toml").write_text(
        f'run = "run.toml"\n[sweep]\nfolds = 3\nseeds = {seeds}\n[vary]\nn_experts = [2, 5]\n'
    )
    return read_sweep(folder / "sweep.toml")


def loop(file):
    for one in file.files:
        for seed in file.seeds:
            run = one.model_copy(update={"seed": seed})
            rows = read_rows(run)
            for fold in folds_of(rows, 3, seed):
                found = fit_and_score(
                    run.estimator(rows.task),
                    rows.X,
                    rows.y,
                    rows.weights,
                    X_scored=rows.X_held,
                    y_scored=rows.y_held,
                    weights_scored=rows.weights_held,
                    fold=fold,
                )
                assert np.isfinite(found.scores["log_loss"])


def on_cluster(place, asked):
    file = place / "scheduler.json"
    dask = [sys.executable, "-m", "distributed.cli.dask_"]
    common = ["--no-dashboard", "--scheduler-file", str(file)]

    def start(kind, *words):
        command = [*dask[:-1], dask[-1] + kind, *common, *words]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    processes = [start("scheduler", "--host", "127.0.0.1", "--port", "0")]
    processes += [start("worker", "--nthreads", "1", "--no-nanny") for _ in range(2)]
    try:
        with Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(2)
            address = client.scheduler.address
        return timed("cluster", lambda: sweep(written(place / "dask", asked), scheduler=address))
    finally:
        for process in processes:
            process.kill()
            process.wait()


def timed(what, work):
    begun = time.perf_counter()
    work()
    seconds = time.perf_counter() - begun
    print(f"{what}: {seconds:.1f} s", flush=True)
    return seconds


if __name__ == "__main__":
    main()
