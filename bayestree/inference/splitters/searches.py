"""The searches for hyperplanes by name."""

from collections.abc import Mapping
from typing import Literal

from bayestree.inference.splitters.cart_lc import CartLC
from bayestree.inference.splitters.co2 import CO2
from bayestree.inference.splitters.guide import Guide
from bayestree.inference.splitters.hhcart import HHCart
from bayestree.inference.splitters.oc1 import OC1
from bayestree.inference.splitters.planes import PlaneSearch

__all__ = ["CO2", "OC1", "SEARCHES", "CartLC", "Guide", "HHCart", "SearchName"]

SearchName = Literal["cart-lc", "co2", "guide", "hhcart", "oc1"]
SEARCHES: Mapping[SearchName, type[PlaneSearch]] = {
    "cart-lc": CartLC,
    "co2": CO2,
    "guide": Guide,
    "hhcart": HHCart,
    "oc1": OC1,
}
