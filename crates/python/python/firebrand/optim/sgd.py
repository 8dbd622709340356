"""Gradient descent and its averages."""

from .. import _firebrand as _C
from .._firebrand import Tensor
from .optimizer import Optimizer, _check, _value


def _common(lr, weight_decay):
    """What all optimizers ask of their first settings."""
    if isinstance(lr, Tensor):
        _check(lr.numel() == 1, "Tensor lr must be 1-element")
    _check(_value(lr) >= 0.0, f"Invalid learning rate: {lr}")
    _check(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")


def _flags(foreach=None, fused=None, differentiable=False, capturable=False, lr=0.0):
    """Combinations of implementations that exclude each other. There is one implementation here; they all mean it."""
    if fused:
        if differentiable:
            raise RuntimeError("`fused` does not support `differentiable`")
        if foreach:
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    if isinstance(lr, Tensor) and foreach and not capturable:
        raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if wanted."""

    def __init__(
        self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False, foreach=None,
        differentiable=False, fused=None,
    ):
        _common(lr, weight_decay)
        _check(momentum >= 0.0, f"Invalid momentum value: {momentum}")
        _check(
            not nesterov or (momentum > 0 and dampening == 0), "Nesterov momentum requires a momentum and zero dampening"
        )
        _flags(foreach, fused, differentiable, True, lr)
        super().__init__(
            params,
            dict(
                lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov, maximize=maximize,
                foreach=foreach, differentiable=differentiable, fused=fused,
            ),
        )

    def _update(self, group, params):
        momentum, lr = group["momentum"], group["lr"]
        for p in params:
            grad = -p.grad if group["maximize"] else p.grad
            if group["weight_decay"] != 0:
                grad = grad.add(p, alpha=group["weight_decay"])
            if momentum != 0:
                buffer = self.state[p].get("momentum_buffer")
                if buffer is None:
                    buffer = self.state[p]["momentum_buffer"] = grad.detach().clone()
                else:
                    buffer.mul_(momentum).add_(grad, alpha=1 - group["dampening"])
                grad = grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer
            if isinstance(lr, Tensor) and (group["differentiable"] or lr.requires_grad):
                p.addcmul_(grad, lr, value=-1)
            else:
                p.add_(grad, alpha=-_value(lr))


class ASGD(Optimizer):
    """Gradient descent that averages its parameters."""

    def __init__(
        self, params, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0, foreach=None, maximize=False,
        differentiable=False, capturable=False,
    ):
        _common(lr, weight_decay)
        _flags(foreach, None, differentiable, capturable, lr)
        super().__init__(
            params,
            dict(
                lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
                differentiable=differentiable, capturable=capturable,
            ),
        )

    def _update(self, group, params):
        lr, lambd = _value(group["lr"]), group["lambd"]
        for p in params:
            state = self.state[p]
            if not state:
                state["step"] = _C.tensor(0.0)
                state["eta"] = _C.tensor(float(lr))
                state["mu"] = _C.tensor(1.0)
                state["ax"] = p.detach().clone().zero_()
            if not isinstance(state["step"], Tensor):
                state["step"] = _C.tensor(float(state["step"]))
            state["step"] += 1
            step, eta = state["step"].item(), _value(state["eta"])
            grad = -p.grad if group["maximize"] else p.grad
            if group["weight_decay"] != 0:
                grad = grad.add(p, alpha=group["weight_decay"])
            p.mul_(1 - lambd * eta).add_(grad, alpha=-eta)
            mu = _value(state["mu"])
            if mu == 1:
                state["ax"].copy_(p)
            else:
                state["ax"].add_(p.sub(state["ax"]).mul_(mu))
            state["eta"].fill_(lr / ((1 + lambd * lr * step) ** group["alpha"]))
            state["mu"].fill_(1 / max(1, step - group["t0"]))


class Rprop(Optimizer):
    """Steps by the signs of gradients."""

    def __init__(
        self, params, lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50), *, capturable=False, foreach=None, maximize=False,
        differentiable=False,
    ):
        _common(lr, 0)
        _check(0.0 < etas[0] < 1.0 < etas[1], f"Invalid eta values: {etas[0]}, {etas[1]}")
        _flags(foreach, None, differentiable, capturable, lr)
        super().__init__(
            params,
            dict(
                lr=lr, etas=etas, step_sizes=step_sizes, foreach=foreach, maximize=maximize, differentiable=differentiable,
                capturable=capturable,
            ),
        )

    def _update(self, group, params):
        shrink, grow = group["etas"]
        low, high = group["step_sizes"]
        for p in params:
            grad, state = p.grad, self.state[p]
            if not state:
                state["step"] = _C.tensor(0.0)
                state["prev"] = p.detach().clone().zero_()
                lr = _value(group["lr"])
                state["step_size"] = p.detach().clone().fill_(complex(lr, lr) if p.is_complex() else lr)
            if not isinstance(state["step"], Tensor):
                state["step"] = _C.tensor(float(state["step"]))
            state["step"] += 1
            view = _real if p.is_complex() else _same
            grad, prev, size, target = view(-grad if group["maximize"] else grad), view(state["prev"]), view(state["step_size"]), view(p)
            sign = grad.mul(prev).sign()
            factor = sign.clone()
            factor[sign.gt(0)] = grow
            factor[sign.lt(0)] = shrink
            factor[sign.eq(0)] = 1
            size.mul_(factor).clamp_(low, high)
            grad = grad.clone()
            grad[factor.eq(shrink)] = 0
            target.addcmul_(grad.sign(), size, value=-1)
            prev.copy_(grad)


def _same(t):
    return t


def _real(t):
    return _C.op_function("view_as_real", False)(t)


