""""""

import numpy as np
import pytest
import torch
from scipy import optimize

from bayestree.inference.variational.facets.lbfgs import minimise
from tests.inference.problems import normal


def quadratics(problems=6, parameters=8):
    """Curvatures from 1 to 10**problem, and the minima."""
    turn, _ = torch.linalg.qr(normal(problems, parameters, parameters))
    spread = torch.stack([torch.logspace(0, k, parameters) for k in range(problems)]).double()
    hessian = turn @ torch.diag_embed(spread) @ turn.mT
    centre = normal(problems, parameters, seed=1)

    def objective(points, which):
        off = points - centre[which]
        gradient = (hessian[which] @ off[..., None])[..., 0]
        return (off * gradient).sum(-1) / 2, gradient

    return objective, centre


def rosenbrock(points, which):
    scale = 10.0 ** (which % 3).double()[:, None]
    flat = points.detach().requires_grad_()
    first, second = flat[:, :-1], flat[:, 1:]
    value = (scale * (second - first**2) ** 2 + (1 - first) ** 2).sum(-1)
    (gradient,) = torch.autograd.grad(value.sum(), flat)
    return value.detach(), gradient


def test_quadratics_of_all_conditions_are_minimised():
    objective, centre = quadratics()
    found = minimise(objective, torch.zeros_like(centre), max_iterations=500, tolerance=1e-14)
    assert found.converged.all()
    assert float(found.value.max()) < 1e-9
    torch.testing.assert_close(found.point, centre, atol=1e-4, rtol=0.0)


def test_rosenbrock_batches_end_where_scipy_does():
    start = 0.5 * normal(9, 6, seed=2)
    found = minimise(rosenbrock, start, max_iterations=1000, tolerance=1e-14)
    assert found.converged.all()
    for problem, point in enumerate(start):
        which = torch.tensor([problem])

        def single(x, which=which):
            value, gradient = rosenbrock(torch.tensor(x)[None], which)
            return float(value), gradient[0].numpy()

        options = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 1000}
        other = optimize.minimize(
            single, point.numpy(), jac=True, method="L-BFGS-B", options=options
        )
        np.testing.assert_allclose(found.point[problem], other.x, atol=1e-4)
        assert float(found.value[problem]) < other.fun + 1e-8


def test_it_needs_about_as_many_evaluations_as_scipy():
    start = 0.5 * normal(1, 6, seed=2)
    found = minimise(rosenbrock, start, max_iterations=1000, tolerance=1e-10)
    calls = []

    def single(x):
        value, gradient = rosenbrock(torch.tensor(x)[None], torch.tensor([0]))
        calls.append(x)
        return float(value), gradient[0].numpy()

    optimize.minimize(single, start[0].numpy(), jac=True, method="L-BFGS-B")
    assert found.evaluations < 2 * len(calls)


def test_a_problem_does_not_depend_on_the_others():
    start = 0.5 * normal(6, 4, seed=3)
    together = minimise(rosenbrock, start, max_iterations=40)
    for problem in range(len(start)):

        def alone(points, which, problem=problem):
            return rosenbrock(points, which + problem)

        found = minimise(alone, start[problem : problem + 1], max_iterations=40)
        assert torch.equal(found.point[0], together.point[problem])


def test_trials_without_a_value_are_shortened():
    """Beyond a wall the function is nan, and steps from afar are long."""
    met = []

    def walled(points, which):
        flat = points.detach().requires_grad_()
        value = (-(1 - flat).log() - 5 * flat).sum(-1)  # undefined above 1, least at 0.8
        (gradient,) = torch.autograd.grad(value.sum(), flat)
        met.append(bool(value.isnan().any()))
        return value.detach(), gradient

    start = torch.tensor([[0.9], [-30.0], [0.999]]).double()
    found = minimise(walled, start, tolerance=1e-12)
    assert any(met)
    assert (found.point - 0.8).abs().max() < 1e-4


def test_a_start_without_a_value_is_left_alone():
    def objective(points, which):
        value = points.square().sum(-1)
        return torch.where(which == 0, torch.nan, value), 2 * points

    found = minimise(objective, torch.ones(2, 3).double())
    assert found.converged.tolist() == [False, True]
    assert torch.equal(found.point[0], torch.ones(3).double())


def test_a_wrong_gradient_ends_the_search():
    """A problem without descent is abandoned, and the others are not."""

    def objective(points, which):
        sign = torch.where(which == 0, -1.0, 1.0).double()[:, None]
        return points.square().sum(-1), sign * 2 * points

    found = minimise(objective, torch.ones(2, 3).double(), tolerance=1e-12)
    assert not found.converged[0]
    assert torch.equal(found.point[0], torch.ones(3).double())
    assert float(found.value[1]) < 1e-9


@pytest.mark.parametrize("most", [1, 7])
def test_steps_are_limited(most):
    objective, centre = quadratics()
    start = torch.zeros_like(centre)
    short, long = (minimise(objective, start, max_iterations=n) for n in (most, most + 1))
    assert (short.value >= long.value).all()
    assert (short.value > long.value).any()
    assert short.evaluations >= most + 1
