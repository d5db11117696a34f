"""A prior and a family of leaves as a user writes them."""

from dataclasses import dataclass

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from scipy import stats

from bayestree.models import HyperplanePrior, IndependentPrior, criteria
from bayestree.models.leaves import LeafDistribution, NumericLeaf, Site


@dataclass(frozen=True)
class Ridge(IndependentPrior):
    scale: float = 1.0

    def laws(self, like):
        law = dist.Normal(like.new_zeros(()), like.new_tensor(self.scale))
        return law, law


@dataclass(frozen=True)
class Bare(HyperplanePrior):
    """The same density without ``laws``, and so without the mean of it."""

    scale: float = 1.0

    def state(self, size, like, plates):
        law = dist.Normal(like.new_zeros(()), like.new_tensor(self.scale))
        shape = (size.n_nodes, size.n_experts, size.n_features)
        with plates.node, plates.expert:
            hyperplane = pyro.sample("hyperplane", law.expand(shape).to_event(1))
            return hyperplane, pyro.sample("intercept", law)

    def log_prob(self, sites):
        law = dist.Normal(0.0, self.scale)
        return sum(law.log_prob(sites[name]).sum() for name in ("hyperplane", "intercept"))


class Deviance(criteria.Criterion):
    def value(self, sums):
        mass, total = sums.clamp_min(1e-30).unbind(-1)
        return total * (total / mass).log()


@dataclass(frozen=True)
class Gamma(LeafDistribution):
    shape: torch.Tensor
    rate: torch.Tensor
    prior: LeafDistribution | None = None

    def conditionals(self, sites):
        yield "leaf_rate", dist.Gamma(self.shape, self.rate)

    def expected_log_density(self, y):
        y, log_rate = y.unsqueeze(-1), torch.digamma(self.shape) - self.rate.log()
        return y * log_rate - self.shape / self.rate - torch.lgamma(y + 1)

    def mean(self):
        return {"leaf_rate": self.shape / self.rate}


@dataclass(frozen=True)
class Counts(NumericLeaf):
    shape: float = 1.0
    rate: float = 1.0
    sites = {"leaf_rate": Site(("leaf",), "positive")}
    criterion = Deviance()
    whole = True

    def prior(self, like):
        return Gamma(like.new_tensor(self.shape), like.new_tensor(self.rate))

    def posterior(self, sums):
        return Gamma(self.shape + sums[..., 1], self.rate + sums[..., 0], self.prior(sums))

    def distribution(self, sites):
        return dist.Poisson(sites["leaf_rate"])

    def statistics(self, y, weights):
        return torch.stack((weights, weights * y), dim=-1)

    def cdf(self, sites, y):
        return stats.poisson.cdf(np.asarray(y)[:, None], sites["leaf_rate"].numpy())
