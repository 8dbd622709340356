"""Modes as context managers and decorators."""

import functools
import inspect
import warnings

from .. import _firebrand as _C


class _Mode:
    """A mode that is a context manager and, called with a function or class, a decorator."""

    def _fresh(self):
        return type(self)()

    def __call__(self, function):
        if inspect.isclass(function):
            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future versions. You should only decorate functions or "
                "methods. To preserve the current behavior of class decoration, you can directly decorate the `__init__` method "
                "and nothing else.",
                FutureWarning,
                stacklevel=2,
            )
            function.__init__ = self(function.__init__)
            return function
        if inspect.isgeneratorfunction(function):
            return self._generator(function)

        @functools.wraps(function)
        def run(*args, **kwargs):
            with self._fresh():
                return function(*args, **kwargs)

        return run

    def _generator(self, function):
        # The mode holds while the generator runs, not while its caller does.
        @functools.wraps(function)
        def run(*args, **kwargs):
            generator = function(*args, **kwargs)
            send, value = generator.send, None
            while True:
                try:
                    with self._fresh():
                        found = send(value)
                except StopIteration as end:
                    return end.value
                try:
                    value = yield found
                    send = generator.send
                except GeneratorExit:
                    with self._fresh():
                        generator.close()
                    raise
                except BaseException as error:
                    value, send = error, generator.throw

        return run


class _GradMode(_Mode):
    _on = True

    def __enter__(self):
        self._before = _C.is_grad_enabled()
        _C.set_grad_mode(self._on)

    def __exit__(self, *_):
        _C.set_grad_mode(self._before)


class _Bare(type):
    """Lets a mode decorate without parentheses: `@no_grad`."""

    def __call__(cls, function=None):
        mode = super().__call__()
        return mode if function is None else mode(function)


class no_grad(_GradMode, metaclass=_Bare):
    """Nothing is recorded."""

    _on = False


class enable_grad(_GradMode, metaclass=_Bare):
    """What was switched off is recorded again."""

    _on = True


class set_grad_enabled(_GradMode):
    """Records or not, from now on, or until the end of the block."""

    def __init__(self, mode):
        self._on = mode
        self._before = _C.is_grad_enabled()
        _C.set_grad_mode(mode)

    def __enter__(self):
        _C.set_grad_mode(self._on)

    def __call__(self, function):
        _C.set_grad_mode(self._before)
        return super().__call__(function)

    def _fresh(self):
        return set_grad_enabled(self._on)


class inference_mode(_Mode):
    """New tensors are inference tensors: no history, no version, no view tracking."""

    def __new__(cls, mode=True):
        if callable(mode) and not isinstance(mode, bool):
            return cls()(mode)
        return super().__new__(cls)

    def __init__(self, mode=True):
        self._on = mode

    def __enter__(self):
        self._guard = _C.InferenceGuard(self._on)

    def __exit__(self, *_):
        self._guard.leave()

    def _fresh(self):
        return inference_mode(self._on)


class set_multithreading_enabled(_Mode):
    """Whether backward uses several threads: from now on, or until the end of the block."""

    def __init__(self, mode):
        self._on = mode
        self._before = _C.set_multithreading(mode)

    def __enter__(self):
        pass

    def __exit__(self, *_):
        _C.set_multithreading(self._before)

    def _fresh(self):
        return set_multithreading_enabled(self._on)


class _force_original_view_tracking(_Mode):
    """Whether views remember the ops that made them, so that a write rebuilds their history from these ops instead of as strided
    slices: from now on, or until the end of the block."""

    def __init__(self, mode):
        self._on = mode
        self._before = _C.set_view_replay(mode)

    def __enter__(self):
        pass

    def __exit__(self, *_):
        _C.set_view_replay(self._before)

    def _fresh(self):
        return _force_original_view_tracking(self._on)


class autocast(_Mode):
    """Ops choose their dtype until the end of the block: matrix products are computed in `dtype`."""

    def __init__(self, device_type="cpu", dtype=None, enabled=True, cache_enabled=None):
        if device_type != "cpu":
            raise RuntimeError(f"autocast on {device_type!r}: expected 'cpu'")
        self._arguments = (enabled, _C.bfloat16 if dtype is None else dtype)
        self._scopes = []

    def __enter__(self):
        self._scopes.append(_C.AutocastScope(*self._arguments))
        return self

    def __exit__(self, *_):
        self._scopes.pop().leave()

    def _fresh(self):
        return autocast("cpu", self._arguments[1], self._arguments[0])


class _set_fwd_grad_enabled(_Mode):
    """Whether ops compute tangents: from now on, or until the end of the block."""

    def __init__(self, mode):
        self._on = mode
        self._before = _C.set_fwd_grad(mode)

    def __enter__(self):
        pass

    def __exit__(self, *_):
        _C.set_fwd_grad(self._before)

    def _fresh(self):
        return _set_fwd_grad_enabled(self._on)
