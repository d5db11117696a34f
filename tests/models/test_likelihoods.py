import numpy as np
import pytest
import torch
from sklearn.metrics import mutual_info_score

from bayestree.models.leaves import Categorical
from bayestree.models.likelihoods import mutual_information, variance
from tests.models.cases import make, rows, traced


def entropy(labels):
    share = np.unique(labels, return_counts=True)[1] / len(labels)
    return -(share * np.log(share)).sum()


def hard(leaf, n_leaves):
    """Log-probabilities of rows that each lie in one leaf, -inf elsewhere replaced by -1000."""
    log_prob = torch.full((len(leaf), n_leaves), -1000.0, dtype=torch.float64)
    log_prob[torch.arange(len(leaf)), torch.as_tensor(leaf)] = 0.0
    return log_prob


def test_hard_leaves_have_the_mutual_information_of_scikit_learn():
    generator = np.random.default_rng(0)
    leaf, y = generator.integers(4, size=200), generator.integers(3, size=200)
    y[leaf == 1] = 2  # a pure leaf
    found = mutual_information(
        hard(leaf, 5), torch.as_tensor(y), torch.ones(200, dtype=torch.float64), Categorical(3)
    )
    expected = 200 * (mutual_info_score(y, leaf) - entropy(y))
    assert float(found) == pytest.approx(expected, rel=1e-10)


def test_soft_leaves_have_the_entropy_of_the_expected_table():
    model = make(fit="mutual-information")
    X, y, weights = rows(model, weighted=True)
    _, sites = traced(model, X, y)
    member = model.leaf_log_probs(sites, X).exp().numpy()
    table = np.array([(member * weights.numpy()[:, None])[y.numpy() == c].sum(0) for c in range(3)])
    joint = table / table.sum()
    conditional = -(joint * np.log(joint / joint.sum(0))).sum()
    found = float(model.log_likelihood(sites, X, y, weights))
    assert found == pytest.approx(-float(weights.sum()) * conditional, rel=1e-10)


def test_an_empty_leaf_and_an_empty_cell_have_finite_gradients():
    log_prob = hard(np.array([0, 0, 1, 1]), 3).requires_grad_()
    y = torch.tensor([0, 1, 1, 1])
    mutual_information(log_prob, y, torch.ones(4).double(), Categorical(3)).backward()
    assert torch.isfinite(log_prob.grad).all()
    log_prob = hard(np.array([0, 0, 1, 1]), 3).requires_grad_()
    variance(log_prob, torch.tensor([0.0, 1, 2, 5]).double(), torch.ones(4).double()).backward()
    assert torch.isfinite(log_prob.grad).all()


def test_hard_leaves_have_the_log_of_their_pooled_variance():
    generator = np.random.default_rng(0)
    leaf, y = generator.integers(4, size=100), generator.normal(size=100)
    weights = generator.integers(1, 4, size=100)
    found = variance(hard(leaf, 4), torch.as_tensor(y), torch.as_tensor(weights).double())
    leaf, y = np.repeat(leaf, weights), np.repeat(y, weights)
    squares = sum(((y[leaf == i] - y[leaf == i].mean()) ** 2).sum() for i in range(4))
    assert float(found) == pytest.approx(-len(y) / 2 * np.log(squares / len(y)), rel=1e-10)
