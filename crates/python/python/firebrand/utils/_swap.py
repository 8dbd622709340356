"""Two tensors that trade everything but their identities."""

import weakref

from ..autograd.grad_mode import no_grad


def swap_tensors(t1, t2):
    """Exchanges two leaves: class, attributes, data, gradient and whether they require it.

    Every variable goes on meaning the object it meant, and hooks stay where they were registered.
    """
    for name, t in (("t1", t1), ("t2", t2)):
        if weakref.getweakrefs(t):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
        if not t.is_leaf:
            raise RuntimeError(f"swap_tensors: {name} has a history, which belongs to its object; detach() it first")
    first, second = (t.__dict__.copy() for t in (t1, t2))
    kinds, flags, grads = (type(t1), type(t2)), (t1.requires_grad, t2.requires_grad), (t1.grad, t2.grad)
    with no_grad():
        for t in (t1, t2):
            t.grad = None
            t.requires_grad_(False)
        data = t1.data, t2.data
        t1.data, t2.data = data[1], data[0]
    if kinds[0] is not kinds[1]:
        t1.__class__, t2.__class__ = kinds[1], kinds[0]
    for t, attributes, flag, grad in ((t1, second, flags[1], grads[1]), (t2, first, flags[0], grads[0])):
        t.__dict__.clear()
        t.__dict__.update(attributes)
        t.requires_grad_(flag)
        t.grad = grad
