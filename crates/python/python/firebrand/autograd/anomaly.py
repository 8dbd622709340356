"""Anomaly mode: NaN gradients are errors, and a failing node says where its forward call was."""

import warnings

from .. import _firebrand as _C


class set_detect_anomaly:
    """Turns anomaly mode on or off, from now on, or until the end of the block."""

    def __init__(self, mode, check_nan=True):
        self._before = _C.anomaly_mode()
        _C.set_anomaly_mode(mode, check_nan)

    def __enter__(self):
        pass

    def __exit__(self, *_):
        _C.set_anomaly_mode(*self._before)


class detect_anomaly:
    """Anomaly mode until the end of the block. Slow; for debugging."""

    def __init__(self, check_nan=True):
        self._check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging.",
            stacklevel=2,
        )

    def __enter__(self):
        self._before = _C.anomaly_mode()
        _C.set_anomaly_mode(True, self._check_nan)

    def __exit__(self, *_):
        _C.set_anomaly_mode(*self._before)
