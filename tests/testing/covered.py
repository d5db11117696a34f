"""Which parts the contracts of a test module are about."""

from bayestree.testing import Contract


def covered(module, attribute):
    """The types of the parts that the contracts of a module state under a name."""
    contracts = [
        value
        for name, value in module.items()
        if name.startswith("Test") and isinstance(value, type) and issubclass(value, Contract)
    ]
    return {type(getattr(contract, attribute)) for contract in contracts}


def subclasses(kind):
    """All classes below one."""
    return {one for below in kind.__subclasses__() for one in (below, *subclasses(below))}
