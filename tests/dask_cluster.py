"""A Dask scheduler and workers on loopback, each a process that can be killed."""

import os
import signal
import subprocess
import sys

import pytest

distributed = pytest.importorskip("distributed")


class Cluster:
    """Processes, each of a scheduler or a worker of one thread."""

    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.scheduler = self.start("scheduler", "--host", "127.0.0.1", "--port", "0")
        self.workers = [self.worker(), self.worker()]
        with distributed.Client(scheduler_file=str(self.file), set_as_default=False) as client:
            client.wait_for_workers(2)
            self.address = client.scheduler.address

    def worker(self):
        here = ["--local-directory", str(self.folder)]
        return self.start("worker", "--nthreads", "1", "--no-nanny", *here)

    def start(self, kind, *words):
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", "--no-dashboard"]
        with (self.folder / f"{kind}.log").open("a") as log:
            return subprocess.Popen(
                [*command, "--scheduler-file", str(self.file), *words], stdout=log, stderr=log
            )

    def kill(self, process):
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self):
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()
