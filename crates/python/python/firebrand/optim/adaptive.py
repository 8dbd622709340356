"""Steps scaled by the history of each element."""

import math

from .. import _firebrand as _C
from .._firebrand import Tensor
from .._functions import finfo
from ..nn.parameter import is_lazy
from ._lists import Lists, view_as_real
from .adam import _Adaptive
from .optimizer import _check, _value
from .sgd import _common, _flags


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
                if is_lazy(p):
                    raise ValueError("Adagrad needs the sizes of its parameters, and got an uninitialized parameter")
                first = complex(start, start) if p.is_complex() else start
                self.state[p] = {"step": _C.tensor(0.0), "sum": _C.op_function("full_like", False)(p.detach(), first)}

    def _formula(self, group, p, grad, state, step):
        if isinstance(grad, Tensor) and grad.is_sparse:
            if group["weight_decay"] != 0:
                raise RuntimeError("weight_decay option is not compatible with sparse gradients")
            grad = grad.to_dense()
        rate = _value(group["lr"]) / (1 + (step - 1) * group["lr_decay"])
        target, grad, total = view_as_real(p), view_as_real(self._decayed(group, p, grad)), view_as_real(state["sum"])
        total.addcmul_(grad, grad, value=1)
        target.addcdiv_(grad, total.sqrt().add_(group["eps"]), value=-rate)

    def _fused(self, group, params):
        for alike in self._alike(params):
            states = [self.state[p] for p in alike]
            sums, steps = [state["sum"] for state in states], [state["step"] for state in states]
            self._run_fused(
                _C.op_function("_fused_adagrad_", False), [alike, [p.grad for p in alike], sums, steps],
                lr=group["lr"], lr_decay=group["lr_decay"], weight_decay=group["weight_decay"], eps=group["eps"],
                maximize=group["maximize"],
            )


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

    def _names(self, group):
        return ("square_avg", "acc_delta")

    def _formula(self, group, p, grad, state, step):
        rho, eps = group["rho"], group["eps"]
        target, grad = view_as_real(p), view_as_real(self._decayed(group, p, grad))
        square, moved = view_as_real(state["square_avg"]), view_as_real(state["acc_delta"])
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

    def _names(self, group):
        momentum, centered = group["momentum"] > 0, group["centered"]
        return ("square_avg",) + (("momentum_buffer",) if momentum else ()) + (("grad_avg",) if centered else ())

    def _formula(self, group, p, grad, state, step):
        alpha, lr = group["alpha"], _value(group["lr"])
        target, grad = view_as_real(p), view_as_real(self._decayed(group, p, grad))
        square = view_as_real(state["square_avg"])
        square.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        if group["centered"]:
            mean = view_as_real(state["grad_avg"])
            mean.lerp_(grad, 1 - alpha)
            below = square.addcmul(mean, mean, value=-1).sqrt_()
        else:
            below = square.sqrt()
        below = below.add_(group["eps"])
        if group["momentum"] > 0:
            buffer = view_as_real(state["momentum_buffer"])
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

    def _start(self, group, p):
        if p.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        if p.grad.is_sparse:
            raise RuntimeError("Adafactor does not support sparse gradients")
        if p.dim() < 2:
            return {"step": _C.tensor(0.0), "variance": p.grad.new_zeros(p.shape)}
        rows, columns = list(p.shape), list(p.shape)
        rows[-1] = columns[-2] = 1
        return {"step": _C.tensor(0.0), "row_var": p.grad.new_zeros(rows), "col_var": p.grad.new_zeros(columns)}

    def _formula(self, group, p, grad, state, step):
        if isinstance(p, Lists):
            # Norms decide on each parameter's own step, so lists have nothing in common here.
            for one, its_grad in zip(p.tensors, grad.tensors):
                self._formula(group, one, its_grad, self.state[one], step)
            return
        tiny, small = group["eps"]
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
