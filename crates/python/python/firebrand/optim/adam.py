"""Steps scaled by running means of gradients and of their squares."""

import math

from .. import _firebrand as _C
from .._firebrand import Tensor
from ._lists import Lists, each, maximum, view_as_real
from .optimizer import Optimizer, _check, _value
from .sgd import _common, _flags


def _betas(betas, foreach=None, capturable=False):
    _check(
        all(isinstance(b, Tensor) for b in betas) or all(isinstance(b, (int, float)) for b in betas),
        "betas must be either both floats or both Tensors",
    )
    for k, beta in enumerate(betas):
        _check(0.0 <= _value(beta) < 1.0, f"Invalid beta parameter at index {k}: {beta}")
        if isinstance(beta, Tensor):
            _check(
                capturable or not foreach,
                f"betas[{k}] as a Tensor is not supported for capturable=False and foreach=True",
            )
            _check(beta.numel() == 1, f"Tensor betas[{k}] must be 1-element")


class _Adaptive(Optimizer):
    """Counts steps and keeps tensors of the parameter's sizes, zero at first."""

    def _names(self, group):
        """The tensors it keeps."""
        raise NotImplementedError

    def _start(self, group, p):
        zeros = _C.op_function("zeros_like", False)
        return {"step": _C.tensor(0.0)} | {name: zeros(p.detach()) for name in self._names(group)}

    def _decayed(self, group, p, grad):
        """The gradient with weight decay in it, or the parameter with it in there."""
        decay = group["weight_decay"]
        if decay == 0:
            return grad
        if group.get("decoupled_weight_decay"):
            p.mul_(1 - _value(group["lr"]) * decay)
            return grad
        return grad.add(p, alpha=decay)


class Adam(_Adaptive):
    """Running means of gradients and of their squares."""

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, *, foreach=None, maximize=False,
        capturable=False, differentiable=False, fused=None, decoupled_weight_decay=False,
    ):
        if isinstance(lr, Tensor) and foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        _common(lr, weight_decay)
        _check(0.0 <= eps, f"Invalid epsilon value: {eps}")
        _betas(betas, foreach, capturable)
        _flags(foreach, fused, differentiable, capturable, lr)
        super().__init__(
            params,
            dict(
                lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize, foreach=foreach,
                capturable=capturable, differentiable=differentiable, fused=fused, decoupled_weight_decay=decoupled_weight_decay,
            ),
        )

    def _names(self, group):
        return ("exp_avg", "exp_avg_sq") + (("max_exp_avg_sq",) if group["amsgrad"] else ())

    def _formula(self, group, p, grad, state, step):
        beta1, beta2 = (_value(b) for b in group["betas"])
        lr = group["lr"] if group["differentiable"] else _value(group["lr"])
        target, grad = view_as_real(p), view_as_real(self._decayed(group, p, grad))
        mean, square = view_as_real(state["exp_avg"]), view_as_real(state["exp_avg_sq"])
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        first, second = 1 - beta1**step, math.sqrt(1 - beta2**step)
        if group["amsgrad"]:
            largest = view_as_real(state["max_exp_avg_sq"])
            largest.copy_(maximum(largest, square))
            square = largest
        below = square.sqrt().div(second).add_(group["eps"])
        if isinstance(lr, Tensor):
            target.addcdiv_(mean * (-(lr / first)), below)
        else:
            target.addcdiv_(mean, below, value=-(lr / first))

    def _fused(self, group, params):
        beta1, beta2 = (_value(b) for b in group["betas"])
        op = _C.op_function("_fused_adamw_" if group["decoupled_weight_decay"] else "_fused_adam_", False)
        for alike in self._alike(params):
            states = [self.state[p] for p in alike]
            kept = [[state[name] for state in states] for name in ("exp_avg", "exp_avg_sq")]
            kept.append([state["max_exp_avg_sq"] for state in states] if group["amsgrad"] else [])
            self._run_fused(
                op, [alike, [p.grad for p in alike], *kept, [state["step"] for state in states]], lr=group["lr"], beta1=beta1, beta2=beta2, weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=group["amsgrad"],
                maximize=group["maximize"],
            )


class AdamW(Adam):
    """Adam with decoupled weight decay."""

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, *, maximize=False, foreach=None,
        capturable=False, differentiable=False, fused=None,
    ):
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )


class Adamax(_Adaptive):
    """Adam by the largest gradient."""

    def __init__(
        self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, foreach=None, *, maximize=False,
        differentiable=False, capturable=False,
    ):
        _common(lr, weight_decay)
        _check(0.0 <= eps, f"Invalid epsilon value: {eps}")
        _betas(betas)
        _flags(foreach, None, differentiable, capturable, lr)
        super().__init__(
            params,
            dict(
                lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
                differentiable=differentiable, capturable=capturable,
            ),
        )

    def _names(self, group):
        return ("exp_avg", "exp_inf")

    def _formula(self, group, p, grad, state, step):
        beta1, beta2 = group["betas"]
        target, grad = view_as_real(p), view_as_real(self._decayed(group, p, grad))
        mean, largest = view_as_real(state["exp_avg"]), view_as_real(state["exp_inf"])
        mean.lerp_(grad, 1 - beta1)
        largest.copy_(maximum(largest.mul(beta2), grad.abs().add(group["eps"])))
        target.addcdiv_(mean, largest, value=-_value(group["lr"]) / (1 - beta1**step))


class NAdam(_Adaptive):
    """Adam with Nesterov's momentum."""

    def __init__(
        self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3, decoupled_weight_decay=False,
        *, foreach=None, maximize=False, capturable=False, differentiable=False,
    ):
        _common(lr, weight_decay)
        _check(0.0 <= eps, f"Invalid epsilon value: {eps}")
        _betas(betas)
        _check(0.0 <= momentum_decay, f"Invalid momentum_decay value: {momentum_decay}")
        _flags(foreach, None, differentiable, capturable, lr)
        super().__init__(
            params,
            dict(
                lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay,
                decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, foreach=foreach, capturable=capturable,
                differentiable=differentiable,
            ),
        )

    def _names(self, group):
        return ("exp_avg", "exp_avg_sq")

    def _start(self, group, p):
        return super()._start(group, p) | {"mu_product": _C.tensor(1.0)}

    def _formula(self, group, p, grad, state, step):
        beta1, beta2 = group["betas"]
        lr = _value(group["lr"])
        target, grad = view_as_real(p), view_as_real(self._decayed(group, p, grad))
        mean, square = view_as_real(state["exp_avg"]), view_as_real(state["exp_avg_sq"])
        mu, next_mu = (beta1 * (1.0 - 0.5 * (0.96 ** (k * group["momentum_decay"]))) for k in (step, step + 1))
        products = state["mu_product"]
        if not isinstance(products, (Tensor, Lists)):
            products = state["mu_product"] = _C.tensor(float(products))
        each(lambda t: t.mul_(mu), products)
        # It follows from the count of steps, so it is the same for all parameters of a list.
        product = _value(products.tensors[0] if isinstance(products, Lists) else products)
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        below = square.div(1 - beta2**step).sqrt().add_(group["eps"])
        target.addcdiv_(grad, below, value=-lr * (1.0 - mu) / (1.0 - product))
        target.addcdiv_(mean, below, value=-lr * next_mu / (1.0 - product * next_mu))


class RAdam(_Adaptive):
    """Adam that waits for its variance."""

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, decoupled_weight_decay=False, *, foreach=None,
        maximize=False, capturable=False, differentiable=False,
    ):
        _common(lr, weight_decay)
        _check(0.0 <= eps, f"Invalid epsilon value: {eps}")
        _betas(betas)
        _flags(foreach, None, differentiable, capturable, lr)
        super().__init__(
            params,
            dict(
                lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize, foreach=foreach, capturable=capturable,
                decoupled_weight_decay=decoupled_weight_decay, differentiable=differentiable,
            ),
        )

    def _names(self, group):
        return ("exp_avg", "exp_avg_sq")

    def _formula(self, group, p, grad, state, step):
        beta1, beta2 = group["betas"]
        lr = _value(group["lr"])
        target, grad = view_as_real(p), view_as_real(self._decayed(group, p, grad))
        mean, square = view_as_real(state["exp_avg"]), view_as_real(state["exp_avg_sq"])
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        first, second = 1 - beta1**step, 1 - beta2**step
        corrected = mean.div(first)
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * (beta2**step) / second
        if length > 5.0:
            rectified = math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))
            scale = square.sqrt().add_(group["eps"]).reciprocal().mul(math.sqrt(second))
            target.add_(corrected.mul(lr).mul(scale).mul(rectified), alpha=-1.0)
        else:
            target.add_(corrected.mul(lr), alpha=-1.0)


class SparseAdam(Optimizer):
    """Adam for gradients with few entries; dense gradients are refused."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False):
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        _check(0.0 < _value(lr), f"Invalid learning rate: {lr}")
        _check(0.0 < eps, f"Invalid epsilon value: {eps}")
        _betas(betas)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, maximize=maximize))
        sparse = [k for k, p in enumerate(q for g in self.param_groups for q in g["params"]) if p.is_sparse]
        if sparse:
            raise ValueError(f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")
        if any(p.is_complex() for g in self.param_groups for p in g["params"]):
            raise ValueError("SparseAdam does not support complex parameters")

    def _update(self, group, params):
        beta1, beta2 = group["betas"]
        for p in params:
            if not p.grad.is_sparse:
                raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
            state = self.state[p]
            if not state:
                state["step"] = 0
                state["exp_avg"] = _C.op_function("zeros_like", False)(p.detach())
                state["exp_avg_sq"] = _C.op_function("zeros_like", False)(p.detach())
            state["step"] += 1
            grad = p.grad.coalesce()
            # Where the entries are: rows if only the first dimension is sparse, single elements if all are.
            at, values = tuple(grad._indices()), grad._values()
            if group["maximize"]:
                values = -values
            mean, square = state["exp_avg"][at], state["exp_avg_sq"][at]
            mean_step, square_step = (values - mean) * (1 - beta1), (values * values - square) * (1 - beta2)
            mean, square = mean + mean_step, square + square_step
            state["exp_avg"][at] = mean
            state["exp_avg_sq"][at] = square
            first, second = 1 - beta1 ** state["step"], 1 - beta2 ** state["step"]
            size = _value(group["lr"]) * math.sqrt(second) / first
            p.index_put_(at, -size * mean / (square.sqrt() + group["eps"]), accumulate=True)
