"""A quasi-Newton method with limited memory."""

from .. import _firebrand as _C
from .._firebrand import Tensor
from ..autograd.grad_mode import enable_grad, no_grad
from .optimizer import Optimizer, _check, _value


def _cubic(x1, f1, g1, x2, f2, g2, bounds=None):
    """The minimum of the cubic through two points with slopes, between bounds."""
    low, high = bounds if bounds is not None else (min(x1, x2), max(x1, x2))
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1**2 - g1 * g2
    if square < 0:
        return (low + high) / 2.0
    d2 = square**0.5
    if x1 <= x2:
        at = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
    else:
        at = x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    return min(max(at, low), high)


def _strong_wolfe(evaluate, x, t, d, f, g, gtd, c1=1e-4, c2=0.9, tolerance=1e-9, most=25):
    """A step length along `d` that satisfies the strong Wolfe conditions."""
    longest = d.abs().max()
    g = g.clone()
    f_new, g_new = evaluate(x, t, d)
    calls, slope_new = 1, g_new.dot(d)
    t_prev, f_prev, g_prev, slope_prev = 0, f, g, gtd
    done, tries = False, 0
    while tries < most:
        if f_new > (f + c1 * t * gtd) or (tries > 1 and f_new >= f_prev):
            bracket, fs, gs, slopes = [t_prev, t], [f_prev, f_new], [g_prev, g_new.clone()], [slope_prev, slope_new]
            break
        if abs(slope_new) <= -c2 * gtd:
            bracket, fs, gs, slopes, done = [t], [f_new], [g_new], [slope_new], True
            break
        if slope_new >= 0:
            bracket, fs, gs, slopes = [t_prev, t], [f_prev, f_new], [g_prev, g_new.clone()], [slope_prev, slope_new]
            break
        low, high, kept = t + 0.01 * (t - t_prev), t * 10, t
        t = _cubic(t_prev, f_prev, slope_prev, t, f_new, slope_new, (low, high))
        t_prev, f_prev, g_prev, slope_prev = kept, f_new, g_new.clone(), slope_new
        f_new, g_new = evaluate(x, t, d)
        calls += 1
        slope_new = g_new.dot(d)
        tries += 1
    if tries == most:
        bracket, fs, gs, slopes = [0, t], [f, f_new], [g, g_new], [gtd, slope_new]
    stalled = False
    low, high = (0, 1) if fs[0] <= fs[-1] else (1, 0)
    while not done and tries < most:
        if abs(bracket[1] - bracket[0]) * longest < tolerance:
            break
        t = _cubic(bracket[0], fs[0], slopes[0], bracket[1], fs[1], slopes[1])
        margin = 0.1 * (max(bracket) - min(bracket))
        if min(max(bracket) - t, t - min(bracket)) < margin:
            if stalled or t >= max(bracket) or t <= min(bracket):
                t = max(bracket) - margin if abs(t - max(bracket)) < abs(t - min(bracket)) else min(bracket) + margin
                stalled = False
            else:
                stalled = True
        else:
            stalled = False
        f_new, g_new = evaluate(x, t, d)
        calls += 1
        slope_new = g_new.dot(d)
        tries += 1
        if f_new > (f + c1 * t * gtd) or f_new >= fs[low]:
            bracket[high], fs[high], gs[high], slopes[high] = t, f_new, g_new.clone(), slope_new
            low, high = (0, 1) if fs[0] <= fs[1] else (1, 0)
        else:
            if abs(slope_new) <= -c2 * gtd:
                done = True
            elif slope_new * (bracket[high] - bracket[low]) >= 0:
                bracket[high], fs[high], gs[high], slopes[high] = bracket[low], fs[low], gs[low], slopes[low]
            bracket[low], fs[low], gs[low], slopes[low] = t, f_new, g_new.clone(), slope_new
    low = 0 if len(bracket) == 1 else low
    return fs[low], gs[low], bracket[low], calls


class LBFGS(Optimizer):
    """Steps along directions from the last gradients; evaluates its closure several times a step."""

    def __init__(
        self, params, lr=1, max_iter=20, max_eval=None, tolerance_grad=1e-7, tolerance_change=1e-9, history_size=100,
        line_search_fn=None,
    ):
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        _check(0.0 <= _value(lr), f"Invalid learning rate: {lr}")
        if max_eval is None:
            max_eval = max_iter * 5 // 4
        super().__init__(
            params,
            dict(
                lr=lr, max_iter=max_iter, max_eval=max_eval, tolerance_grad=tolerance_grad, tolerance_change=tolerance_change,
                history_size=history_size, line_search_fn=line_search_fn,
            ),
        )
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def _flat_grad(self):
        views = []
        for p in self._params:
            if p.grad is None:
                view = p.new_zeros(p.numel())
            else:
                view = (p.grad.to_dense() if p.grad.is_sparse else p.grad).reshape(-1)
            views.append(_C.op_function("view_as_real", False)(view).reshape(-1) if view.is_complex() else view)
        return _C.op_function("cat", False)(views, 0)

    def _move(self, t, direction):
        start = 0
        for p in self._params:
            target = _C.op_function("view_as_real", False)(p) if p.is_complex() else p
            n = target.numel()
            target.add_(direction[start : start + n].view_as(target), alpha=_value(t))
            start += n

    def _evaluate(self, closure, x, t, d):
        self._move(t, d)
        loss = float(closure())
        grad = self._flat_grad()
        for p, value in zip(self._params, x):
            p.copy_(value)
        return loss, grad

    def _step(self, closure):
        with no_grad():
            return self._minimize(closure)

    def _minimize(self, closure):
        if closure is None:
            raise TypeError("step() missing 1 required positional argument: 'closure'")

        def run():
            with enable_grad():
                return closure()

        group = self.param_groups[0]
        lr, search = _value(group["lr"]), group["line_search_fn"]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = run()
        loss, evals = float(first), 1
        state["func_evals"] += 1
        grad = self._flat_grad()
        if grad.abs().max() <= group["tolerance_grad"]:
            return first
        d, t = state.get("d"), state.get("t")
        old_dirs, old_stps, ro = state.get("old_dirs"), state.get("old_stps"), state.get("ro")
        scale, prev_grad, prev_loss = state.get("H_diag"), state.get("prev_flat_grad"), state.get("prev_loss")
        iterations = 0
        while iterations < group["max_iter"]:
            iterations += 1
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                d, old_dirs, old_stps, ro, scale = grad.neg(), [], [], [], 1
            else:
                y, s = grad.sub(prev_grad), d.mul(t)
                ys = y.dot(s)
                if ys > 1e-10:
                    if len(old_dirs) == group["history_size"]:
                        old_dirs.pop(0), old_stps.pop(0), ro.pop(0)
                    old_dirs.append(y)
                    old_stps.append(s)
                    ro.append(1.0 / ys)
                    scale = ys / y.dot(y)
                count = len(old_dirs)
                al = [None] * count
                q = grad.neg()
                for k in range(count - 1, -1, -1):
                    al[k] = old_stps[k].dot(q) * ro[k]
                    q.add_(old_dirs[k], alpha=-_value(al[k]))
                d = r = q.mul(scale)
                for k in range(count):
                    be = old_dirs[k].dot(r) * ro[k]
                    r.add_(old_stps[k], alpha=_value(al[k] - be))
                state["al"] = al
            prev_grad = grad.clone() if prev_grad is None else prev_grad.copy_(grad)
            prev_loss = loss
            total = _value(grad.abs().sum())
            t = (min(1.0, 1.0 / total) if total else 1.0) * lr if state["n_iter"] == 1 else lr
            slope = grad.dot(d)
            if slope > -group["tolerance_change"]:
                break
            calls = 0
            if search is not None:
                if search != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")
                x = [p.clone() for p in self._params]
                loss, grad, t, calls = _strong_wolfe(
                    lambda x, t, d: self._evaluate(run, x, t, d), x, t, d, loss, grad, slope
                )
                self._move(t, d)
                small = grad.abs().max() <= group["tolerance_grad"]
            else:
                self._move(t, d)
                small = False
                if iterations != group["max_iter"]:
                    loss = float(run())
                    grad = self._flat_grad()
                    small = grad.abs().max() <= group["tolerance_grad"]
                    calls = 1
            evals += calls
            state["func_evals"] += calls
            if iterations == group["max_iter"] or evals >= group["max_eval"] or small:
                break
            if d.mul(t).abs().max() <= group["tolerance_change"] or abs(loss - prev_loss) < group["tolerance_change"]:
                break
        state.update(
            d=d, t=t, old_dirs=old_dirs, old_stps=old_stps, ro=ro, H_diag=scale, prev_flat_grad=prev_grad, prev_loss=prev_loss
        )
        return first
