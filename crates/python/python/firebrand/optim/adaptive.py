"""Steps scaled by the history of each element."""

import math

from .. import _firebrand as _C
from .._firebrand import Tensor
from .adam import _Adaptive
from .optimizer import _check, _value
from .sgd import _common, _flags, _real, _same


class Adagrad(_Adaptive):
    """Sums of squared gradients."""

    def __init__(
        self, params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10, foreach=None, *,
        maximize=False, differentiable=False, fused=None,
    ):
        _common(lr, weight_decay)
        _check(0.0 <= lr_decay, f"Invalid lr_decay value: {lr_decay}")
        _check(0.0 <= initial_accumulator_value, f"Invalid initial_accumulator_value value: {initial_accumulator_value}")
        _check(0.0 <= eps, f"Invalid epsilon value: {eps}")
        _flags(foreach, fused, differentiable, True, lr)
        super().__init__(
            params,
            dict(
                lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value,
                foreach=foreach, maximize=maximize, differentiable=differentiable, fused=fused,
            ),
        )
        for group in self.param_groups:
            start = group["initial_accumulator_value"]
            for p in group["params"]:
                first = complex(start, start) if p.is_complex() else start
                self.state[p] = {"step": _C.tensor(0.0), "sum": _C.op_function("full_like", False)(p.detach(), first)}

    def _update(self, group, params):
        for p in params:
            state = self.state[p]
            if not isinstance(state["step"], Tensor):
                state["step"] = _C.tensor(float(state["step"]))
            state["step"] += 1
            step, grad = state["step"].item(), self._grad(group, p)
            if group["weight_decay"] != 0:
                if grad.is_sparse:
                    raise RuntimeError("weight_decay option is not compatible with sparse gradients")
                grad = grad.add(p, alpha=group["weight_decay"])
            rate = _value(group["lr"]) / (1 + (step - 1) * group["lr_decay"])
            if grad.is_sparse:
                grad = grad.to_dense()
            view = _real if p.is_complex() else _same
            target, grad, total = view(p), view(grad), view(state["sum"])
            total.addcmul_(grad, grad, value=1)
            target.addcdiv_(grad, total.sqrt().add_(group["eps"]), value=-rate)


class Adadelta(_Adaptive):
    """Steps in the units of the parameters."""

    def __init__(
        self, params, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0, foreach=None, *, capturable=False, maximize=False,
        differentiable=False,
    ):
        _common(lr, weight_decay)
        _check(0.0 <= rho <= 1.0, f"Invalid rho value: {rho}")
        _check(0.0 <= eps, f"Invalid epsilon value: {eps}")
        _flags(foreach, None, differentiable, capturable, lr)
        super().__init__(
            params,
            dict(
                lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize, capturable=capturable, foreach=foreach,
                differentiable=differentiable,
            ),
        )

    def _update(self, group, params):
        rho, eps = group["rho"], group["eps"]
        for p in params:
            state, _ = self._started(p, ("square_avg", "acc_delta"), group)
            grad = self._grad(group, p)
            if group["weight_decay"] != 0:
                grad = grad.add(p, alpha=group["weight_decay"])
            view = _real if p.is_complex() else _same
            target, grad, square, moved = view(p), view(grad), view(state["square_avg"]), view(state["acc_delta"])
            square.mul_(rho).addcmul_(grad, grad, value=1 - rho)
            delta = moved.add(eps).sqrt().div(square.add(eps).sqrt()).mul(grad)
            moved.mul_(rho).addcmul_(delta, delta, value=1 - rho)
            target.add_(delta, alpha=-_value(group["lr"]))


class RMSprop(_Adaptive):
    """Running means of squared gradients."""

    def __init__(
        self, params, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False, capturable=False,
        foreach=None, maximize=False, differentiable=False,
    ):
        _common(lr, weight_decay)
        _check(0.0 <= eps, f"Invalid epsilon value: {eps}")
        _check(0.0 <= momentum, f"Invalid momentum value: {momentum}")
        _check(0.0 <= alpha, f"Invalid alpha value: {alpha}")
        _flags(foreach, None, differentiable, capturable, lr)
        super().__init__(
            params,
            dict(
                lr=lr, momentum=momentum, alpha=alpha, eps=eps, centered=centered, weight_decay=weight_decay,
                capturable=capturable, foreach=foreach, maximize=maximize, differentiable=differentiable,
            ),
        )

    def _update(self, group, params):
        alpha, lr = group["alpha"], _value(group["lr"])
        names = ("square_avg",) + (("momentum_buffer",) if group["momentum"] > 0 else ()) + (("grad_avg",) if group["centered"] else ())
        for p in params:
            state, _ = self._started(p, names, group)
            grad = self._grad(group, p)
            if group["weight_decay"] != 0:
                grad = grad.add(p, alpha=group["weight_decay"])
            view = _real if p.is_complex() else _same
            target, grad, square = view(p), view(grad), view(state["square_avg"])
            square.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
            if group["centered"]:
                mean = view(state["grad_avg"])
                mean.lerp_(grad, 1 - alpha)
                below = square.addcmul(mean, mean, value=-1).sqrt_()
            else:
                below = square.sqrt()
            below = below.add_(group["eps"])
            if group["momentum"] > 0:
                buffer = view(state["momentum_buffer"])
                buffer.mul_(group["momentum"]).addcdiv_(grad, below)
                target.add_(buffer, alpha=-lr)
            else:
                target.addcdiv_(grad, below, value=-lr)


class Adafactor(_Adaptive):
    """Second moments by rows and columns."""

    def __init__(
        self, params, lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0, *, foreach=None, maximize=False
    ):
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        _check(0.0 <= _value(lr), f"Learning rate should be >= 0 but is: {lr}")
        _check(0.0 >= beta2_decay, f"beta2_decay should be <= 0 but is: {beta2_decay}")
        _check(eps[0] is None or 0.0 <= eps[0], f"epsilon1 should be >= 0 but is: {eps[0]}")
        _check(0.0 <= eps[1], f"epsilon2 should be >= 0 but is: {eps[1]}")
        _check(1.0 <= d, f"Clipping threshold d should be >= 1 but is: {d}")
        _check(0.0 <= weight_decay, f"weight_decay should be >= 0 but is: {weight_decay}")
        super().__init__(
            params,
            dict(lr=lr, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay, foreach=foreach, maximize=maximize),
        )

    def _update(self, group, params):
        from .._functions import finfo

        tiny, small = group["eps"]
        for p in params:
            if p.is_complex():
                raise RuntimeError("Adafactor does not support complex parameters")
            if p.grad.is_sparse:
                raise RuntimeError("Adafactor does not support sparse gradients")
            state, grad = self.state[p], self._grad(group, p)
            if not state:
                state["step"] = _C.tensor(0.0)
                if p.dim() > 1:
                    rows, columns = list(p.shape), list(p.shape)
                    rows[-1] = columns[-2] = 1
                    state["row_var"], state["col_var"] = p.grad.new_zeros(rows), p.grad.new_zeros(columns)
                else:
                    state["variance"] = p.grad.new_zeros(p.shape)
            if not isinstance(state["step"], Tensor):
                state["step"] = _C.tensor(float(state["step"]))
            state["step"] += 1
            step = state["step"].item()
            eps = finfo(p.dtype).eps if tiny is None else tiny
            weight, lr = step ** group["beta2_decay"], _value(group["lr"])
            rate = min(lr, 1 / math.sqrt(step))
            alpha = max(small, p.norm(2).item() / math.sqrt(p.numel())) * rate
            if group["weight_decay"] != 0:
                p.mul_(1 - lr * group["weight_decay"])
            if p.dim() > 1:
                rows, columns = state["row_var"], state["col_var"]
                rows.lerp_(grad.norm(dim=-1, keepdim=True).square_().div_(grad.size(-1)), weight)
                columns.lerp_(grad.norm(dim=-2, keepdim=True).square_().div_(grad.size(-2)), weight)
                variance = (rows @ columns).div_(rows.mean(dim=-2, keepdim=True).clamp_(min=eps))
            else:
                state["variance"].lerp_(grad.square(), weight)
                variance = state["variance"].clone()
            update = variance.clamp_(min=eps * eps).rsqrt_().mul_(grad)
            size = max(1.0, update.norm(2).item() / (math.sqrt(update.numel()) * group["d"]))
            p.add_(update, alpha=-alpha / size)
