"""Optimizers: settings in `param_groups`, steps in Rust."""

from . import _firebrand as _C
from ._firebrand import Tensor
from .autograd.grad_mode import enable_grad


class Optimizer:
    """Updates parameters from their gradients."""

    _kind = None

    def __init__(self, params, defaults):
        self.defaults = defaults
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got Tensor")
        params = list(params)
        if not params:
            raise ValueError("optimizer got an empty parameter list")
        groups = params if isinstance(params[0], dict) else [{"params": params}]
        self.param_groups = []
        self._inner = None
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, group):
        """Adds parameters with settings of their own."""
        group = {**self.defaults, **group}
        params = group["params"]
        group["params"] = params = [params] if isinstance(params, Tensor) else list(params)
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not p.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
        known = {id(p) for g in self.param_groups for p in g["params"]}
        if any(id(p) in known for p in params):
            raise ValueError("some parameters appear in more than one parameter group")
        unknown = set(group) - set(self.defaults) - {"params"}
        if unknown:
            raise TypeError(f"{type(self).__name__} has no setting called {sorted(unknown)[0]!r}")
        if self._inner is None:
            self._inner = _C.PyOptimizer(self._kind, params, self._settings(group))
        else:
            self._inner.add_group(params, self._settings(group))
        self.param_groups.append(group)

    @staticmethod
    def _settings(group):
        return {name: value for name, value in group.items() if name != "params"}

    def zero_grad(self, set_to_none=True):
        """Clears the gradients of all parameters."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad = None if set_to_none else p.grad.detach().zero_()

    def step(self, closure=None):
        """Takes one step with the current gradients."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for k, group in enumerate(self.param_groups):
            self._inner.configure(k, self._settings(group))
        self._inner.step()
        return loss

    @property
    def state(self):
        """Tensors by parameter."""
        params = [p for group in self.param_groups for p in group["params"]]
        return {params[k]: tensors for k, tensors in self._inner.state().items()}

    def state_dict(self):
        """Everything needed to continue, by the position of the parameter."""
        groups, start = [], 0
        for group in self.param_groups:
            count = len(group["params"])
            groups.append({**self._settings(group), "params": list(range(start, start + count))})
            start += count
        return {"state": self._inner.state(), "param_groups": groups}

    def load_state_dict(self, state_dict):
        """Restores what `state_dict` gave."""
        groups = state_dict["param_groups"]
        if [len(g["params"]) for g in groups] != [len(g["params"]) for g in self.param_groups]:
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        for own, given in zip(self.param_groups, groups):
            own.update({name: value for name, value in given.items() if name in self.defaults})
        self._inner.load_state(state_dict["state"])


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if wanted."""

    _kind = "SGD"

    def __init__(self, params, lr=1e-3, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, *, maximize=False):
        super().__init__(params, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov, maximize=maximize))


class Adam(Optimizer):
    """Steps scaled by the running means of gradients and of their squares."""

    _kind = "Adam"

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, amsgrad=False, *, maximize=False):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize))


class AdamW(Optimizer):
    """Adam with decoupled weight decay."""

    _kind = "AdamW"

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, *, maximize=False):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize))
