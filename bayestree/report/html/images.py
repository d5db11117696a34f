"""Rows of numbers as the images that they stand for."""

import base64
import io

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.image import imsave

from bayestree._utils.arrays import FloatArray
from bayestree.report.html.svg import element, title

SIDE = 112  # pixels of the longer side on the page


def shades(values: FloatArray, shape: tuple[int, int], spoken: str) -> Markup:
    """Numbers from 0 on as shades of grey: the larger, the darker."""
    top = float(values.max())
    return _image(mpl.colormaps["Greys"](values / top if top > 0 else values), shape, spoken)


def signed(values: FloatArray, shape: tuple[int, int], spoken: str) -> Markup:
    """Numbers of both signs: red above 0, blue below, white at 0."""
    top = float(np.abs(values).max())
    place = 0.5 + 0.5 * values / top if top > 0 else np.full(len(values), 0.5)
    return _image(mpl.colormaps["RdBu_r"](place), shape, spoken)


def between(
    values: FloatArray, low: float, high: float, shape: tuple[int, int], spoken: str
) -> Markup:
    """An image between the least and the largest value of all images."""
    reach = high - low
    place = (values - low) / reach if reach > 0 else np.zeros(len(values))
    return _image(mpl.colormaps["Greys"](place), shape, spoken)


def _image(colours: FloatArray, shape: tuple[int, int], spoken: str) -> Markup:
    """Colours (pixels, 4) as a picture without smoothing."""
    height, width = shape
    raster = np.rint(255 * colours[:, :3]).astype(np.uint8).reshape(height, width, 3)
    file = io.BytesIO()
    imsave(file, raster, format="png", metadata={"Software": ""})
    data = base64.b64encode(file.getvalue()).decode()
    scale = SIDE / max(shape)
    size = {"width": round(scale * width), "height": round(scale * height)}
    picture = element("image", href=f"data:image/png;base64,{data}", **size)
    return element(
        "svg", title(spoken), picture, class_="chart pixels", role="img", aria_label=spoken,
        viewBox=f"0 0 {size['width']} {size['height']}", **size,
    )  # fmt: skip
