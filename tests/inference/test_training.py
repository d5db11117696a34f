""""""

import subprocess
import sys

import torch

from bayestree.inference.training import Adam
from bayestree.runs.checkpoints import capture, from_bytes, restore, to_bytes

CURVATURE = torch.tensor([[1.0, 30.0], [0.1, 5.0]], dtype=torch.float64)


def points(dtype=torch.float64):
    """Two parameters, one of them transposed in memory, and one without a gradient."""
    one = torch.arange(4, dtype=dtype).view(2, 2)
    return [one.clone().T.requires_grad_(), (one - 1).requires_grad_(), torch.ones(3)]


def descend(optimiser, values, steps, first=0):
    for step in range(first, first + steps):
        optimiser.zero_grad()
        (CURVATURE * (values[0] * values[1] - step).square()).sum().backward()
        optimiser.step()


def test_it_takes_the_steps_of_torch():
    ours, theirs = points(), points()
    own = Adam(ours, 0.1, betas=(0.8, 0.95))
    reference = torch.optim.Adam(theirs, lr=0.1, betas=(0.8, 0.95))
    for first, rate in ((0, 0.1), (5, 0.03)):
        own.rate = reference.param_groups[0]["lr"] = rate
        descend(own, ours, 5, first)
        descend(reference, theirs, 5, first)
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    assert not torch.equal(ours[0], points()[0])


def test_a_restored_optimiser_goes_on_with_the_same_numbers():
    values = points()
    whole = Adam(values, 0.1)
    descend(whole, values, 3)
    parts = {"optimiser": whole, "first": values[0].detach(), "second": values[1].detach()}
    state = from_bytes(to_bytes(capture(parts)))
    descend(whole, values, 4, 3)
    again = points()
    resumed = Adam(again, 0.1)
    parts = {"optimiser": resumed, "first": again[0].detach(), "second": again[1].detach()}
    restore(parts, state)
    descend(resumed, again, 4, 3)
    assert torch.equal(values[0], again[0])
    assert torch.equal(values[1], again[1])


def test_it_does_not_import_the_compiler():
    code = (
        "import sys, torch; from bayestree.inference.training import Adam\n"
        "value = torch.ones(2, requires_grad=True); one = Adam([value])\n"
        "one.zero_grad(); value.sum().backward(); one.step()\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
