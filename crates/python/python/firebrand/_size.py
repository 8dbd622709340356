"""Sizes of a tensor."""


class Size(tuple):
    """A tuple of sizes."""

    __slots__ = ()

    def numel(self):
        """The product of the sizes."""
        n = 1
        for size in self:
            n *= size
        return n

    def __repr__(self):
        return f"firebrand.Size([{', '.join(map(str, self))}])"

    def __getitem__(self, index):
        found = tuple.__getitem__(self, index)
        return Size(found) if isinstance(index, slice) else found

    def __add__(self, other):
        return Size(tuple.__add__(self, tuple(other)))

    def __reduce__(self):
        return Size, (tuple(self),)
