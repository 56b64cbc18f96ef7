"""Attributes of the program that are replaced while it is recorded."""


def replace(owner, name, former, replacement, undo):
    """Replaces an attribute, and adds to `undo` what restores it."""
    setattr(owner, name, replacement)

    def restore():
        # Whoever replaced it since calls ours, which then does nothing more.
        if vars(owner).get(name) is replacement:
            setattr(owner, name, former)

    undo.append(restore)
