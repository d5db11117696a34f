"""The No-U-Turn sampler for soft trees."""

from bayestree.inference.nuts.method import Nuts, nuts

__all__ = ["Nuts", "nuts"]
