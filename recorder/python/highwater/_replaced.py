"""Replaces attributes of the program during a recording."""


def replace(owner, name, former, replacement, undo):
    """Replaces an attribute. Adds a function to `undo` that restores it."""
    setattr(owner, name, replacement)

    def restore():
        # Whoever replaced it since calls ours, which then does nothing more.
        if vars(owner).get(name) is replacement:
            setattr(owner, name, former)

    undo.append(restore)
