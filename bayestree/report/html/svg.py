"""Elements of SVG: escaped text, few digits."""

from collections.abc import Iterable
from typing import Any

from markupsafe import Markup, escape

PLACES = 1  # decimals of a length in pixels


def element(name: str, *inside: Any, **attributes: Any) -> Markup:
    """An element; ``class_`` is written ``class``, an underscore within a name as a hyphen.

    Attributes that are None are left out; what is inside is escaped unless it is Markup.
    """
    written = Markup("").join(
        Markup(' {}="{}"').format(_name(key), _value(value))
        for key, value in attributes.items()
        if value is not None
    )
    body = Markup("").join(escape(one) for one in inside)
    if not body:
        return Markup("<{}{}/>").format(name, written)
    return Markup("<{0}{1}>{2}</{0}>").format(name, written, body)


def title(text: str) -> Markup:
    """What a browser shows beside the pointer, and reads aloud."""
    return element("title", text)


def lines(x: float, y: float, texts: Iterable[tuple[str, str]], step: float, **more: Any) -> Markup:
    """Lines of text below each other, each with the class it is given."""
    return Markup("").join(
        element("text", text, x=x, y=y + step * place, class_=kind or None, **more)
        for place, (text, kind) in enumerate(texts)
        if text
    )


def _name(key: str) -> str:
    return "viewBox" if key == "viewBox" else key.rstrip("_").replace("_", "-")


def _value(value: Any) -> Any:
    if isinstance(value, float):
        return f"{round(value, PLACES):g}"
    return value
