"""The measure: errors in units in the last place of f32, pooled as root mean square."""

import numpy as np

# Entries smaller than this fraction of the typical one count as if they were that large: there the error is that of a
# difference of large terms, and its size in ulps is luck.
SMALL = 1e-3


def ulp(x):
    """The distance of neighbouring f32 values around |x|."""
    return np.spacing(np.maximum(np.abs(x), np.finfo(np.float32).tiny).astype(np.float32)).astype(np.float64)


class Error:
    """Root mean square error of one result over all its entries and samples.

    The unit of an entry is the ulp of the truth: of the entry itself for pointwise ops, otherwise of the largest one of all
    samples, since sums lose what their largest terms lose.
    """

    def __init__(self, pointwise):
        self.pointwise, self.squares, self.count = pointwise, np.zeros(2), 0
        self.largest, self.broken = 0.0, False

    def add(self, truth, theirs, ours):
        """`truth` in f64, PyTorch's result and ours; entries that overflow in f32 or have no finite truth do not count."""
        truth, theirs, ours = (np.asarray(x, np.float64).reshape(-1) for x in (truth, theirs, ours))
        counts = (np.abs(truth) <= np.finfo(np.float32).max) & np.isfinite(theirs)
        if not counts.any():
            return
        truth, theirs, ours = truth[counts], theirs[counts], ours[counts]
        if not np.isfinite(ours).all():
            self.broken = True
            return
        unit = 1.0
        if self.pointwise:
            typical = np.sqrt(np.mean(truth**2))
            unit = ulp(np.maximum(np.abs(truth), SMALL * typical))
        self.squares += [np.sum(((x - truth) / unit) ** 2) for x in (theirs, ours)]
        self.count += truth.size
        self.largest = max(self.largest, np.abs(truth).max())

    def both(self):
        """PyTorch's error and ours, in ulps."""
        theirs, ours = np.sqrt(self.squares / max(self.count, 1)) / (1.0 if self.pointwise else ulp(self.largest))
        return theirs, float("inf") if self.broken else ours


def within(theirs, ours):
    """What is required of every row."""
    return ours <= max(1.5 * theirs, theirs + 2.0)
