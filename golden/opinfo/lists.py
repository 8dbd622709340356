"""Ops on lists of tensors: one op for each position of the lists, and the fused steps of optimisers."""

from .base import S, T, X, f32

POSITIVE = dict(lo=0.25, hi=3.0)


def samples(t):
    two, other, third = [T(2, 3), T(4)], [T(2, 3, **POSITIVE), T(4, **POSITIVE)], [T(2, 3, **POSITIVE), T(4, **POSITIVE)]
    # PyTorch's own gradient of the one tensor of a `.Tensor` overload fails, so that one asks for none.
    short, wrong = [T(2, 3)], [T(5), T(4)]
    few = dict(dtypes=[f32])

    for form in ("", "_"):
        for name in ("add", "sub"):
            alpha = {"alpha": 2}
            t.op(f"_foreach_{name}{form}.List", S(two, other), S(two, other, **alpha), S([T(1)], [T(1)]), err=[S(two, short), S(two, wrong)], **few)
        for name in ("mul", "div"):
            t.op(f"_foreach_{name}{form}.List", S(two, other), S([T(1)], [T(1, **POSITIVE)]), err=[S(two, short), S(two, wrong)], **few)
            t.op(f"_foreach_{name}{form}.Tensor", S(two, T(grad=False, **POSITIVE)), err=[S(two, T(2))], **few)
        t.op(f"_foreach_add{form}.Tensor", S(two, T(grad=False)), S(two, T(grad=False), alpha=3), err=[S(two, T(2))], **few)
        for name in ("add", "sub", "mul", "div"):
            t.op(f"_foreach_{name}{form}.Scalar", S(two, 2.5), S(two, 2), **few)
            t.op(f"_foreach_{name}{form}.ScalarList", S(two, [2.5, -1.5]), err=[S(two, [1.0])], **few)
        for name in ("addcmul", "addcdiv"):
            t.op(f"_foreach_{name}{form}.Scalar", S(two, other, third), S(two, other, third, 0.5), err=[S(two, other, short)], **few)
            t.op(f"_foreach_{name}{form}.ScalarList", S(two, other, third, [0.5, 2.0]), err=[S(two, other, third, [1.0])], **few)
        weights = [T(2, 3, lo=0.0, hi=1.0), T(4, lo=0.0, hi=1.0)]
        t.op(f"_foreach_lerp{form}.List", S(two, other, weights), err=[S(two, other, short)], **few)
        t.op(f"_foreach_lerp{form}.Scalar", S(two, other, 0.25), err=[S(two, short, 0.25)], **few)
        t.op(f"_foreach_lerp{form}.ScalarList", S(two, other, [0.25, 0.75]), err=[S(two, other, [0.5])], **few)
        t.op(f"_foreach_neg{form} _foreach_exp{form}", S(two), S([T(1)]), **few)
        t.op(f"_foreach_sqrt{form}", S(other), **few)
    t.op("_foreach_zero_", S(two), S([T(0), T(2)]), grad=False, **few)
    t.op("_foreach_copy_", S(two, other), S(two, other, True), err=[S(two, short)], grad=False, **few)

    fused(t)


def fused(t):
    """State after a first step, a later one, one that skips (`found_inf`) and one whose gradients are scaled."""
    plain = dict(dtypes=[f32], nc=False, grad=False)

    def state(*lo):
        return [T(2, 3, lo=lo[0], hi=2.0, grad=False), T(4, lo=lo[0], hi=2.0, grad=False)]

    signed, positive = (lambda: state(-2.0)), (lambda: state(0.0))

    def steps(n):
        return [X(float(n), f32, grad=False), X(float(n), f32, grad=False)]

    common = dict(lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False)
    scaled = dict(grad_scale=X(4.0, f32, grad=False), found_inf=X(0.0, f32, grad=False))
    skipped = dict(grad_scale=X(4.0, f32, grad=False), found_inf=X(1.0, f32, grad=False))
    for name in ("_fused_adam_", "_fused_adamw_"):
        t.op(
            name,
            S(signed(), signed(), signed(), positive(), [], steps(1), **common),
            S(signed(), signed(), signed(), positive(), [], steps(7), **{**common, "weight_decay": 0.1}),
            S(signed(), signed(), signed(), positive(), [], steps(7), **{**common, "maximize": True}),
            S(signed(), signed(), signed(), positive(), positive(), steps(3), **{**common, "amsgrad": True}),
            S(signed(), signed(), signed(), positive(), [], steps(3), **common, **scaled),
            S(signed(), signed(), signed(), positive(), [], steps(3), **common, **skipped),
            **plain,
        )
    sgd = dict(weight_decay=0.0, momentum=0.0, lr=0.1, dampening=0.0, nesterov=False, maximize=False, is_first_step=False)
    moving = {**sgd, "momentum": 0.9}
    t.op(
        "_fused_sgd_",
        S(signed(), signed(), [], **sgd),
        S(signed(), signed(), [], **{**sgd, "weight_decay": 0.1, "maximize": True}),
        S(signed(), signed(), signed(), **moving),
        S(signed(), signed(), signed(), **{**moving, "is_first_step": True}),
        S(signed(), signed(), signed(), **{**moving, "dampening": 0.25, "weight_decay": 0.1}),
        S(signed(), signed(), signed(), **{**moving, "nesterov": True}),
        S(signed(), signed(), signed(), **moving, **scaled),
        S(signed(), signed(), signed(), **moving, **skipped),
        **plain,
    )
    adagrad = dict(lr=0.1, lr_decay=0.0, weight_decay=0.0, eps=1e-10, maximize=False)
    t.op(
        "_fused_adagrad_",
        S(signed(), signed(), positive(), steps(1), **adagrad),
        S(signed(), signed(), positive(), steps(5), **{**adagrad, "lr_decay": 0.1, "weight_decay": 0.1}),
        S(signed(), signed(), positive(), steps(5), **{**adagrad, "maximize": True}),
        S(signed(), signed(), positive(), steps(5), **adagrad, **scaled),
        S(signed(), signed(), positive(), steps(5), **adagrad, **skipped),
        **plain,
    )
