"""What a shell proposes for a value that is begun: after ``bayestree --install-completion``."""

from bayestree.runs.trees import TREES


def tree_names(incomplete: str) -> list[str]:
    """Names of trees."""
    return [name for name in TREES if name.startswith(incomplete)]


def card_names(incomplete: str) -> list[str]:
    """Names of the cards that travel with the package; paths are the shell's own."""
    from bayestree.runs.cards import cards

    names = sorted({card.name for card in cards()})
    return [name for name in names if name.startswith(incomplete)]
