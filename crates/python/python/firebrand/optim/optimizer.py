"""The base of all optimizers: parameter groups, state, hooks, and what is saved of them."""

import warnings
from collections import OrderedDict, defaultdict
from copy import deepcopy
from itertools import chain

from .. import _firebrand as _C
from .._firebrand import Tensor
from ..autograd.grad_mode import enable_grad, no_grad
from ..utils.hooks import RemovableHandle
from ._lists import Lists, States

_global_optimizer_pre_hooks = OrderedDict()
_global_optimizer_post_hooks = OrderedDict()
required = object()


def _add(hooks, hook, prepend=False):
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook):
    """Calls `hook(optimizer, args, kwargs)` before every step of every optimizer."""
    return _add(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook):
    """Calls `hook(optimizer, args, kwargs)` after every step of every optimizer."""
    return _add(_global_optimizer_post_hooks, hook)


class Optimizer:
    """Updates parameters from their gradients.

    A subclass says in `_formula` what one step does; state is kept in `state`, by parameter.
    """

    def __init__(self, params, defaults):
        self.defaults = defaults
        self._hooks()
        if isinstance(params, Tensor):
            raise TypeError(
                f"params argument given to the optimizer should be an iterable of Tensors or dicts, but got {_typename(params)}"
            )
        self.state = defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _hooks(self):
        for name in (
            "_optimizer_step_pre_hooks",
            "_optimizer_step_post_hooks",
            "_optimizer_state_dict_pre_hooks",
            "_optimizer_state_dict_post_hooks",
            "_optimizer_load_state_dict_pre_hooks",
            "_optimizer_load_state_dict_post_hooks",
        ):
            self.__dict__.setdefault(name, OrderedDict())

    def __getstate__(self):
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._hooks()
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def __repr__(self):
        text = type(self).__name__ + " ("
        for k, group in enumerate(self.param_groups):
            text += f"\nParameter Group {k}\n"
            for key in sorted(group):
                if key != "params":
                    text += f"    {key}: {group[key]}\n"
        return text + ")"

    # ---- groups

    def add_param_group(self, param_group):
        """Adds parameters with settings of their own."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets will change "
                "between runs. Please use a list instead."
            )
        else:
            params = list(params)
        names = []
        if any(isinstance(p, tuple) for p in params):
            if not all(isinstance(p, tuple) for p in params):
                raise ValueError("all optimizer params should be with/without names. Some param names are missing")
            names, params = [n for n, _ in params], [p for _, p in params]
        param_group = {**param_group, "params": params}
        if names:
            param_group["param_names"] = names
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {_typename(p)}")
            if not self.defaults.get("differentiable") and not (p.is_leaf or p.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if len(params) != len({id(p) for p in params}):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this will cause an error",
                stacklevel=3,
            )
        if self.param_groups and ("param_names" in param_group) != ("param_names" in self.param_groups[0]):
            have, lack = ("with", "without") if "param_names" in param_group else ("without", "with")
            raise ValueError(
                f"all optimizer param groups should be with/without names. cannot add param group {have} names to the optimizer "
                f"{lack} names"
            )
        known = {id(p) for group in self.param_groups for p in group["params"]}
        if not known.isdisjoint({id(p) for p in params}):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def zero_grad(self, set_to_none=True):
        """Clears the gradients of all parameters."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if set_to_none:
                    p.grad = None
                else:
                    if p.grad.grad_fn is not None:
                        p.grad.detach_()
                    else:
                        p.grad.requires_grad_(False)
                    p.grad.zero_()

    # ---- steps

    def step(self, closure=None):
        """Takes one step with the current gradients; `closure` computes them anew."""
        args = () if closure is None else (closure,)
        return self._stepped(args, {})

    def _stepped(self, args, kwargs):
        for hook in (*_global_optimizer_pre_hooks.values(), *self._optimizer_step_pre_hooks.values()):
            found = hook(self, args, kwargs)
            if found is not None:
                if not isinstance(found, tuple) or len(found) != 2:
                    raise RuntimeError(f"{type(self).__name__}.step must return None or a tuple of (new_args, new_kwargs), but got {found}.")
                args, kwargs = found
        closure = args[0] if args else kwargs.get("closure")
        result = self._step(closure)
        for hook in (*self._optimizer_step_post_hooks.values(), *_global_optimizer_post_hooks.values()):
            hook(self, args, kwargs)
        return result

    def _step(self, closure):
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            if group.get("differentiable"):
                self._update(group, params)
            else:
                with no_grad():
                    self._update(group, params)
        return loss

    # ---- one step of a group
    #
    # A subclass writes its formula once, for a parameter; with `foreach` the same formula runs for all parameters at the same
    # point of their history at once, with `fused` one op does it.

    def _update(self, group, params):
        if group.get("capturable"):
            raise AssertionError(
                "If capturable=True, params and state_steps must be on supported devices: graphs of a device are not captured here."
            )
        for p in params:
            state = self.state[p]
            if not state:
                state.update(self._start(group, p))
            if "step" in state:
                if not isinstance(state["step"], Tensor):
                    state["step"] = _C.tensor(float(state["step"]))
                state["step"] += 1
        if group.get("fused"):
            self._check_fused(params)
            self._fused(group, params)
        elif group.get("foreach") and not any(p.grad.is_sparse for p in params):
            if group.get("differentiable"):
                raise AssertionError("_foreach ops don't support autograd")
            for alike in self._alike(params):
                grads = Lists(p.grad for p in alike)
                states = [self.state[p] for p in alike]
                self._formula(
                    group, Lists(alike), grads.neg() if group.get("maximize") else grads, States(states), _count(states[0])
                )
        else:
            for p in params:
                grad = -p.grad if group.get("maximize") else p.grad
                self._formula(group, p, grad, self.state[p], _count(self.state[p]))
        for p in params:
            if not self.state[p]:
                del self.state[p]  # nothing is kept of it

    def _start(self, group, p):
        """The state of a parameter before its first step."""
        return {}

    def _formula(self, group, p, grad, state, step):
        """One step of a parameter, or of several at once."""
        raise NotImplementedError

    def _fused(self, group, params):
        """The same step by one op."""
        raise RuntimeError(f"{type(self).__name__} has no fused implementation")

    def _alike(self, params):
        """Parameters by dtype, count of steps and kinds of state: those that one formula serves."""
        groups = {}
        for p in params:
            state = self.state[p]
            groups.setdefault((p.dtype, p.grad.dtype, _count(state), tuple(state)), []).append(p)
        return groups.values()

    @staticmethod
    def _run_fused(op, lists, **settings):
        """Calls a fused op; half precision is computed in float32 and rounded once, at the end."""
        if lists[0][0].dtype in (_C.float32, _C.float64):
            op(*lists, **settings)
            return
        wide = [[t.float() for t in tensors] for tensors in lists]
        op(*wide, **settings)
        for tensors, computed in zip(lists, wide):
            for t, value in zip(tensors, computed):
                t.copy_(value)

    @staticmethod
    def _check_fused(params):
        for p in params:
            if not p.is_floating_point() or p.device.type != "cpu":
                raise RuntimeError(
                    "`fused=True` requires all the params to be floating point Tensors of supported devices: ['cpu'] but "
                    f"{p.dtype} and {p.device.type}"
                )

    def register_step_pre_hook(self, hook):
        """Calls `hook(optimizer, args, kwargs)` before each step; it may replace the arguments."""
        return _add(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook):
        """Calls `hook(optimizer, args, kwargs)` after each step."""
        return _add(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook, prepend=False):
        """Calls `hook(optimizer)` before `state_dict`."""
        return _add(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook, prepend=False):
        """Calls `hook(optimizer, state_dict)` after `state_dict`; it may replace the dictionary."""
        return _add(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook, prepend=False):
        """Calls `hook(optimizer, state_dict)` before `load_state_dict`; it may replace the dictionary."""
        return _add(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook, prepend=False):
        """Calls `hook(optimizer)` after `load_state_dict`."""
        return _add(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    # ---- saving

    def state_dict(self):
        """Everything needed to continue, by the position of the parameter."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        places, groups = {}, []
        for group in self.param_groups:
            for p in group["params"]:
                places.setdefault(id(p), len(places))
            packed = {key: value for key, value in group.items() if key != "params"}
            packed["params"] = [places[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {places[id(key)] if isinstance(key, Tensor) else key: value for key, value in self.state.items()}
        found = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            replaced = hook(self, found)
            if replaced is not None:
                found = replaced
        return found

    def load_state_dict(self, state_dict):
        """Restores what `state_dict` gave."""
        state_dict = dict(state_dict)
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            replaced = hook(self, state_dict)
            if replaced is not None:
                state_dict = replaced
        own, given = self.param_groups, deepcopy(state_dict["param_groups"])
        if len(own) != len(given):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(own, given)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        params = dict(
            zip(chain.from_iterable(g["params"] for g in given), chain.from_iterable(g["params"] for g in own))
        )

        def cast(param, value, key=None, group=None):
            if isinstance(value, Tensor):
                return self._cast_state(param, value, key, group)
            if isinstance(value, dict):
                return {k: cast(param, v, k, group) for k, v in value.items()}
            if isinstance(value, (list, tuple)):
                return type(value)(cast(param, v, key, group) for v in value)
            return value

        state = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in params:
                param = params[key]
                group = next(g for g in own if any(p is param for p in g["params"]))
                state[param] = cast(param, value, group=group)
            else:
                state[key] = value
        groups = []
        for a, b in zip(own, given):
            b = {**b, "params": a["params"]}
            if "param_names" in a and "param_names" not in b:
                b["param_names"] = a["param_names"]
            groups.append(b)
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    @staticmethod
    def _cast_state(param, value, key, group):
        """A loaded tensor as the parameter's dtype; counts of steps stay what they are."""
        if key == "step":
            capturable = group is not None and (group.get("capturable") or group.get("fused"))
            return value.to(dtype=_C.float32) if capturable else value
        return value.to(dtype=param.dtype) if param.is_floating_point() else value


def _typename(value):
    from ..nn.modules.module import _typename

    return _typename(value)


def _check(condition, text):
    if not condition:
        raise ValueError(text)


def _value(x):
    return x.item() if isinstance(x, Tensor) else x


def _count(state):
    """How many steps were taken, if they are counted."""
    return state["step"].item() if "step" in state else None
