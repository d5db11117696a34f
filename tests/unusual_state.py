"""States of torch and NumPy that a caller may have chosen, all at once."""

from contextlib import contextmanager

import numpy as np
import torch


def state():
    """What the block below changes, in this thread or in the process."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.empty(0).device,
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_anomaly_enabled(),
        np.geterr(),
    )


@contextmanager
def unusual_state():
    """Let the block leave it as it is."""
    before = state()
    try:
        torch.set_default_dtype(torch.float16)
        torch.set_default_device("meta")
        torch.use_deterministic_algorithms(True)
        with (
            np.errstate(all="raise"),
            torch.inference_mode(),
            torch.autograd.set_detect_anomaly(True),
        ):
            inside = state()
            yield
            assert state() == inside
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
        torch.use_deterministic_algorithms(False)
    assert state() == before
