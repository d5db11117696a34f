"""Functions in a process of their own, which need not import torch again.

The processes are forks of a server that has imported the package and done nothing else: forks of
the process of the tests would inherit locks that its threads hold.
"""

import multiprocessing
import os
import pty
import select
import sys
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "bayestree.cli",
        "bayestree.estimators.cpt",
        "bayestree.inference.core.experts",
        "arviz",
        "pytest",
    ]
)


def forked(action, *arguments, terminal=False, **settings):
    """Exit status, standard output and standard error of ``action`` in a fork.

    ``action`` is a function of a module. With ``terminal`` standard error is a terminal.
    """
    with TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        ours, theirs = pty.openpty() if terminal else (None, None)
        names = (str(output), os.ttyname(theirs) if terminal else str(errors))
        job = (action, arguments, settings, names, dict(os.environ), str(Path.cwd()))
        # by this name a fit tells that it is not one of several in parallel
        process = SERVER.Process(target=_run, args=job, name="MainProcess")
        process.start()
        if terminal:
            said = _read(ours, process)
            os.close(ours)
            os.close(theirs)
        process.join()
        if not terminal:
            said = errors.read_text()
        return process.exitcode, output.read_text(), said


def _run(action, arguments, settings, names, environment, folder):
    """Run ``action`` with files of these names for its output, and end the process."""
    os.environ.update(environment)
    os.chdir(folder)
    for number, name in enumerate(names, start=1):
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_NOCTTY)
        os.dup2(file, number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    try:
        action(*arguments, **settings)
    except BaseException:
        traceback.print_exc()
        raise SystemExit(1) from None
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _read(terminal, process):
    """All that a process writes to a terminal."""
    found = b""
    while select.select([terminal], [], [], 0.05)[0] or process.is_alive():
        if select.select([terminal], [], [], 0)[0]:
            found += os.read(terminal, 65536)
    return found.decode()
