"""Gradient descent and its averages."""

from .. import _firebrand as _C
from .._firebrand import Tensor
from ._lists import Lists, each, view_as_real
from .optimizer import Optimizer, _check, _value


def _common(lr, weight_decay):
    """What all optimizers ask of their first settings."""
    if isinstance(lr, Tensor):
        _check(lr.numel() == 1, "Tensor lr must be 1-element")
    _check(_value(lr) >= 0.0, f"Invalid learning rate: {lr}")
    _check(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")


def _flags(foreach=None, fused=None, differentiable=False, capturable=False, lr=0.0):
    """Refuses implementations that exclude each other."""
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

    def _formula(self, group, p, grad, state, step):
        momentum, lr = group["momentum"], group["lr"]
        if group["weight_decay"] != 0:
            grad = grad.add(p, alpha=group["weight_decay"])
        if momentum != 0:
            if "momentum_buffer" in state:
                buffer = state["momentum_buffer"]
                buffer.mul_(momentum).add_(grad, alpha=1 - group["dampening"])
            else:
                buffer = state["momentum_buffer"] = grad.detach().clone()
            grad = grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer
        if isinstance(lr, Tensor) and (group["differentiable"] or lr.requires_grad):
            p.addcmul_(grad, lr, value=-1)
        else:
            p.add_(grad, alpha=-_value(lr))

    def _fused(self, group, params):
        for alike in self._alike(params):
            states = [self.state[p] for p in alike]
            first, buffers = "momentum_buffer" not in states[0], []
            if group["momentum"] != 0:
                if first:
                    for state, p in zip(states, alike):
                        state["momentum_buffer"] = _C.op_function("empty_like", False)(p.grad)
                buffers = [state["momentum_buffer"] for state in states]
            self._run_fused(
                _C.op_function("_fused_sgd_", False), [alike, [p.grad for p in alike], buffers], weight_decay=group["weight_decay"], momentum=group["momentum"],
                lr=group["lr"], dampening=group["dampening"], nesterov=group["nesterov"], maximize=group["maximize"],
                is_first_step=first,
            )


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

    def _start(self, group, p):
        return {
            "step": _C.tensor(0.0),
            "eta": _C.tensor(float(_value(group["lr"]))),
            "mu": _C.tensor(1.0),
            "ax": _C.op_function("zeros_like", False)(p.detach()),
        }

    def _formula(self, group, p, grad, state, step):
        lr, lambd = _value(group["lr"]), group["lambd"]
        # Both follow from the count of steps, so they are the same for all parameters of a list.
        eta, mu = (_value(x.tensors[0] if isinstance(x, Lists) else x) for x in (state["eta"], state["mu"]))
        if group["weight_decay"] != 0:
            grad = grad.add(p, alpha=group["weight_decay"])
        p.mul_(1 - lambd * eta).add_(grad, alpha=-eta)
        average = state["ax"]
        if mu == 1:
            average.copy_(p)
        else:
            average.add_(p.sub(average).mul_(mu))
        next_eta, next_mu = lr / ((1 + lambd * lr * step) ** group["alpha"]), 1 / max(1, step - group["t0"])
        each(lambda t: t.fill_(next_eta), state["eta"])
        each(lambda t: t.fill_(next_mu), state["mu"])


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

    def _start(self, group, p):
        lr = _value(group["lr"])
        size = _C.op_function("full_like", False)(p.detach(), complex(lr, lr) if p.is_complex() else lr)
        return {"step": _C.tensor(0.0), "prev": _C.op_function("zeros_like", False)(p.detach()), "step_size": size}

    def _formula(self, group, p, grad, state, step):
        shrink, grow = group["etas"]
        low, high = group["step_sizes"]
        prev, size, target = view_as_real(state["prev"]), view_as_real(state["step_size"]), view_as_real(p)
        grad = view_as_real(grad).clone()

        def factor(sign):
            found = sign.clone()
            found[sign.gt(0)], found[sign.lt(0)], found[sign.eq(0)] = grow, shrink, 1
            return found

        factors = each(factor, grad.mul(prev).sign())
        each(lambda s: s.clamp_(low, high), size.mul_(factors))
        each(lambda g, f: g.masked_fill_(f.eq(shrink), 0), grad, factors)
        target.addcmul_(grad.sign(), size, value=-1)
        prev.copy_(grad)
