"""Nonlinear functions as modules."""

from .. import functional as F
from .. import init
from ..parameter import Parameter, _empty
from .module import Module


class RReLU(Module):
    """A leaky ReLU whose slope is drawn, in training, and the mean of the bounds otherwise."""

    def __init__(self, lower=1.0 / 8, upper=1.0 / 3, inplace=False):
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input):
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self):
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace else "")


class _Activation(Module):
    """A function of one tensor; its arguments are attributes, printed if the class says so."""

    _arguments = ()
    _shown = None

    def extra_repr(self):
        shown = self._arguments if self._shown is None else self._shown
        parts = [f"{name}={getattr(self, name)}" for name in shown if name != "inplace"]
        if getattr(self, "inplace", False):
            parts.append("inplace=True")
        return ", ".join(parts)

    def forward(self, input):
        return getattr(F, self._function)(input, *(getattr(self, name) for name in self._arguments))


def _make(name, function, arguments=(), defaults=(), doc=""):
    """A module of a function and its arguments."""

    def __init__(self, *args, **kwargs):
        Module.__init__(self)
        if len(args) > len(arguments):
            raise TypeError(f"{name}() takes at most {len(arguments)} arguments, found {len(args)}")
        given = dict(zip(arguments, args))
        for key, value in kwargs.items():
            if key not in arguments or key in given:
                raise TypeError(f"{name}() got an unexpected keyword argument '{key}'")
            given[key] = value
        for key, default in zip(arguments, defaults):
            setattr(self, key, given.get(key, default))

    content = {"__init__": __init__, "_function": function, "_arguments": arguments, "__doc__": doc, "__module__": __name__}
    return type(name, (_Activation,), content)


ReLU = _make("ReLU", "relu", ("inplace",), (False,), "The positive part.")
ReLU6 = _make("ReLU6", "relu6", ("inplace",), (False,), "The input between 0 and 6.")
Tanh = _make("Tanh", "tanh", doc="The hyperbolic tangent.")
Sigmoid = _make("Sigmoid", "sigmoid", doc="The logistic function.")
ELU = _make("ELU", "elu", ("alpha", "inplace"), (1.0, False), "Exponential below zero.")
CELU = _make("CELU", "celu", ("alpha", "inplace"), (1.0, False), "Continuously differentiable exponential below zero.")
SELU = _make("SELU", "selu", ("inplace",), (False,), "Scaled exponential below zero.")
SiLU = _make("SiLU", "silu", ("inplace",), (False,), "`x * sigmoid(x)`.")
Mish = _make("Mish", "mish", ("inplace",), (False,), "`x * tanh(softplus(x))`.")
Hardswish = _make("Hardswish", "hardswish", ("inplace",), (False,), "`x * relu6(x + 3) / 6`.")
Hardsigmoid = _make("Hardsigmoid", "hardsigmoid", ("inplace",), (False,), "`relu6(x + 3) / 6`.")
Hardtanh = _make("Hardtanh", "hardtanh", ("min_val", "max_val", "inplace"), (-1.0, 1.0, False), "The input between two bounds.")
LeakyReLU = _make("LeakyReLU", "leaky_relu", ("negative_slope", "inplace"), (0.01, False), "A small slope below zero.")
LogSigmoid = _make("LogSigmoid", "logsigmoid", doc="The logarithm of the logistic function.")
Softplus = _make("Softplus", "softplus", ("beta", "threshold"), (1.0, 20.0), "A smooth positive part.")
Softshrink = _make("Softshrink", "softshrink", ("lambd",), (0.5,), "Toward zero by a bound.")
Hardshrink = _make("Hardshrink", "hardshrink", ("lambd",), (0.5,), "Zero between two bounds.")
Softsign = _make("Softsign", "softsign", doc="`x / (1 + |x|)`.")
Tanhshrink = _make("Tanhshrink", "tanhshrink", doc="`x - tanh(x)`.")
Threshold = _make("Threshold", "threshold", ("threshold", "value", "inplace"), (0.0, 0.0, False), "A value where the input is small.")
GLU = _make("GLU", "glu", ("dim",), (-1,), "One half gated by the other.")


class GELU(Module):
    """The Gaussian error linear unit."""

    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input):
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self):
        return f"approximate={self.approximate!r}"


class _OverDim(Module):
    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    def extra_repr(self):
        return f"dim={self.dim}"


class Softmax(_OverDim):
    """Exponentials that sum to one."""

    def forward(self, input):
        return F.softmax(input, self.dim)


class Softmin(_OverDim):
    """The softmax of the negated input."""

    def forward(self, input):
        return F.softmin(input, self.dim)


class LogSoftmax(_OverDim):
    """The logarithm of the softmax."""

    def forward(self, input):
        return F.log_softmax(input, self.dim)


class Softmax2d(Module):
    """The softmax over the channels of images."""

    def forward(self, input):
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3)


class PReLU(Module):
    """A slope below zero that is trained."""

    def __init__(self, num_parameters=1, init=0.25, device=None, dtype=None):
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(_empty(num_parameters, dtype=dtype, device=device))
        self.reset_parameters()

    def reset_parameters(self):
        """The first slope again."""
        init.constant_(self.weight, self.init)

    def forward(self, input):
        return F.prelu(input, self.weight)

    def extra_repr(self):
        return f"num_parameters={self.num_parameters}"
