"""The parsed elements of a page."""

from html.parser import HTMLParser

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """Elements of a page in their order, with their attributes and the text inside."""

    def __init__(self, text):
        super().__init__()
        self.elements, self._open, self._said = [], [], []
        self.feed(text)
        self.close()
        assert not self._open, f"not closed: {[one['tag'] for one in self._open]}"
        for one in self.elements:
            one["text"] = "".join(self._said[one["from"] : one.get("to", one["from"])])

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self._open.append(self.elements[-1])

    def handle_startendtag(self, tag, attrs):
        inside = [one["attrs"].get("id") or one["tag"] for one in self._open]
        self.elements.append(
            {"tag": tag, "attrs": dict(attrs), "inside": inside, "from": len(self._said)}
        )

    def handle_endtag(self, tag):
        assert self._open[-1]["tag"] == tag, f"</{tag}> closes <{self._open[-1]['tag']}>"
        self._open.pop()["to"] = len(self._said)

    def handle_data(self, data):
        self._said.append(data)

    def all(self, tag=None, kind=None, **attrs):
        """Elements of a tag, of a class, and with these attributes."""
        return [
            one
            for one in self.elements
            if (tag is None or one["tag"] == tag)
            and (kind is None or kind in (one["attrs"].get("class") or "").split())
            and all(one["attrs"].get(key) == value for key, value in attrs.items())
        ]

    def ids(self):
        return [one["attrs"]["id"] for one in self.elements if one["attrs"].get("id")]

    def at(self, name):
        """The only element with an id."""
        (found,) = [one for one in self.elements if one["attrs"].get("id") == name]
        return found


def plain(text):
    """A text on one line."""
    return " ".join(text.split())
