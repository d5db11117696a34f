"""The trees that can be named, as the verbs know them."""

from bayestree.runs.trees import TREES as TREES
from bayestree.runs.trees import Named as Named
