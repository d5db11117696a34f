"""Rows on many machines: a calculation from what large_data.py measured.

Run: python benchmarks/many_machines.py [--rows 1e9 --columns 1000 --machines 64 --cores 16 ...]

Constants are CPU seconds of one core of the machine of results/large-data.md. Passes over the
tables use one core per process. A ring all-reduce sends 2 (P - 1) / P messages per process, in
2 (P - 1) rounds; of the processes of a machine, two cross its network at a time.
"""

import argparse

from large_data import print_row

PASSES = {"scan": (100e-9, 0.29e-3), "learn": (144e-9, 0.77e-3), "load": (142e-9, 1.1e-3)}
PREPARE = 70e-9  # seconds per number
PER_TERM = 4.5e-10  # seconds per row, column and facet of a step, both ways
PER_PARTITION = 3e-3  # seconds of a step that do not depend on its rows, per partition
LATENCY = 50e-6  # seconds per message between machines
GROWTH = 45.0  # seconds on 2^25 numbers
CHUNK = 2.0**19  # numbers that are read at a time
PER_ROW = 38  # bytes in the memory of a worker, beside the mapped features


def calculate(
    *, rows: float, columns: int, machines: int, cores: int, gigabits: float, nodes: int,
    facets: int, batch: int, epochs: int, chunk: float,
) -> None:  # fmt: skip
    planes, cells, speed = nodes * facets, rows * columns, gigabits * 1e9 / 8
    print("| quantity | value |")
    print("|---|---|")
    reading = 4 * cells / machines / speed
    message = 4 * (planes * (columns + 1) + 3 * (nodes + 1) + 1)
    print_row(["reading by network, each pass", f"{reading:,.0f} s"])
    print_row(["growth", f"{GROWTH:.0f} s, on {2**25 / columns:,.0f} rows"])
    print_row(["message of a step (MAP; SVI: twice as long)", f"{message / 1e3:,.0f} kB"])
    for processes, threads in ((machines, cores), (machines * cores, 1)):
        print_row([f"**{processes:,} processes of {threads} threads**", ""])
        passes = {
            name: cells * (each + fixed / max(1.0, chunk / columns)) / processes
            for name, (each, fixed) in PASSES.items()
        } | {"prepare": cells * PREPARE / processes}
        for name, seconds in passes.items():
            print_row([name, f"{seconds:,.0f} s"])
        work = batch / processes * columns * planes * PER_TERM / threads + PER_PARTITION
        crossing = min(processes // machines, 2)  # processes of a machine that use its network
        ring = 2 * (processes - 1) / processes * message * crossing / speed
        ring += 2 * (processes - 1) * LATENCY
        step, steps = work + ring, epochs * rows / batch
        print_row(["step: work, all-reduce", f"{1e3 * work:.1f} ms, {1e3 * ring:.1f} ms"])
        print_row([f"{steps:,.0f} steps ({epochs} epochs)", f"{step * steps:,.0f} s"])
        print_row(["efficiency of a step", f"{work / step:.2f}"])
        read = 4 * columns * batch / machines / step
        print_row(["read from the disk of a machine", f"{read / 1e6:,.0f} MB/s"])
        total = sum(passes.values()) + 3 * reading + GROWTH + step * steps
        print_row(["total", f"{total / 3600:.1f} h"])
    print_row(["memory for rows, per machine", f"{PER_ROW * rows / machines / 1e6:,.0f} MB"])
    print_row(["scratch on disk, per machine", f"{8 * cells / machines / 1e9:,.0f} GB"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, usual in (("rows", 1e9), ("gigabits", 10.0), ("chunk", CHUNK)):
        parser.add_argument(f"--{name}", type=float, default=usual)
    sizes = {"columns": 1_000, "machines": 64, "cores": 16, "nodes": 15, "facets": 8}
    for name, default in (sizes | {"batch": 64_000, "epochs": 3}).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    calculate(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
