"""Parametrizations that are often wanted: weights with a norm of their own, of spectral norm one, or orthogonal."""

from ... import _firebrand as _C
from ... import ops
from ..._firebrand import Tensor
from ...autograd.grad_mode import no_grad
from .. import functional as F
from ..modules.module import Module
from .parametrize import register_parametrization


def _op(name):
    return _C.op_function(name, False)


# ---- weight norm


class _WeightNorm(Module):
    """`g * v / |v|`."""

    def __init__(self, dim=0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g, weight_v):
        return _op("_weight_norm")(weight_v, weight_g, self.dim)

    def right_inverse(self, weight):
        return _op("norm_except_dim")(weight, 2, self.dim), weight


def weight_norm(module, name="weight", dim=0):
    """Splits a weight into its direction and its norm over all dimensions but `dim`."""
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state_dict, prefix, *_rest):
        """Dictionaries of the older weight norm have other names."""
        old, new = f"{prefix}{name}_", f"{prefix}parametrizations.{name}.original"
        if old + "g" in state_dict and old + "v" in state_dict:
            state_dict[new + "0"], state_dict[new + "1"] = state_dict.pop(old + "g"), state_dict.pop(old + "v")

    module._register_load_state_dict_pre_hook(rename)
    return module


# ---- spectral norm


class _SpectralNorm(Module):
    """A weight over its largest singular value, which a step of the power iteration follows at each training call."""

    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
        super().__init__()
        rank = weight.dim()
        if not -rank <= dim < rank:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{rank}, {rank - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.dim, self.eps = dim % rank, eps
        if rank > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._matrix(weight)
            rows, columns = matrix.size()
            self.register_buffer("_u", F.normalize(matrix.new_empty(rows).normal_(0, 1), dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(matrix.new_empty(columns).normal_(0, 1), dim=0, eps=eps))
            self._iterate(matrix, 15)

    def _matrix(self, weight):
        if self.dim != 0:
            weight = weight.permute(self.dim, *(d for d in range(weight.dim()) if d != self.dim))
        return weight.flatten(1)

    def _iterate(self, matrix, times):
        with no_grad():
            for _ in range(times):
                self._u = F.normalize(_op("mv")(matrix, self._v), dim=0, eps=self.eps, out=self._u)
                self._v = F.normalize(_op("mv")(matrix.mH, self._u), dim=0, eps=self.eps, out=self._v)

    def forward(self, weight):
        if weight.dim() == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        # Copies: the next call writes the vectors, which backward still needs.
        u, v = self._u.clone(), self._v.clone()
        return weight / _op("vdot")(u, _op("mv")(matrix, v))

    def right_inverse(self, value):
        return value


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Divides a weight by its largest singular value."""
    from ..modules import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d

    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


# ---- orthogonal


def _is_orthogonal(q, eps=None):
    rows, columns = q.size(-2), q.size(-1)
    if rows < columns:
        q = q.mT
        rows, columns = columns, rows
    from ..._functions import allclose, finfo

    identity = _op("eye")(columns, dtype=q.dtype, device=q.device)
    return allclose(q.mH @ q, identity, atol=10.0 * rows * finfo(q.dtype).eps if eps is None else eps)


def _make_orthogonal(a):
    """The orthogonal factor of a tall matrix, with the signs that make the decomposition unique."""
    x, tau = _op("geqrf")(a)
    q = ops.aten.linalg_householder_product.default(x, tau)
    return q * x.diagonal(0, -2, -1).sgn().unsqueeze(-2)


class _Orthogonal(Module):
    """A matrix whose columns, or rows if it is wide, are orthonormal."""

    def __init__(self, weight, orthogonal_map, use_trivialization=True):
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x):
        rows, columns = x.size(-2), x.size(-1)
        wide = rows < columns
        if wide:
            x, rows, columns = x.mT, columns, rows
        if self.orthogonal_map == "householder":
            # The diagonal of the Householder vectors is one by convention; tau has the signs.
            tau = 2.0 / (1.0 + (x * x).tril(-1).sum(dim=-2))
            q = ops.aten.linalg_householder_product.default(x, tau)
            q = q * x.diagonal(0, -2, -1).int().unsqueeze(-2).to(x.dtype)
        else:
            a = x.tril()
            if rows != columns:
                a = _op("cat")([a, a.new_zeros((*a.shape[:-2], rows, rows - columns))], dim=-1)
            a = a - a.mH
            if self.orthogonal_map == "matrix_exp":
                q = _op("matrix_exp")(a)
            else:
                identity = _op("eye")(rows, dtype=a.dtype, device=a.device)
                q = ops.aten.linalg_solve.default(identity - 0.5 * a, identity + 0.5 * a)
            if rows != columns:
                q = q[..., :columns]
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if wide else q

    def right_inverse(self, q):
        if q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {q.shape}."
            )
        rows, columns = q.size(-2), q.size(-1)
        wide = rows < columns
        if wide:
            q, rows, columns = q.mT, columns, rows
        if not hasattr(self, "base"):
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential or the Cayley parametrizations when use_trivialization=False."
                )
            a, tau = _op("geqrf")(q)
            # The diagonal has no other use, so it keeps the signs that make the result unique.
            diagonal = a.diagonal(0, -2, -1)
            diagonal.sign_()
            diagonal[tau == 0.0] *= -1
            return a.mT if wide else a
        if rows == columns:
            q = q.clone() if _is_orthogonal(q) else _make_orthogonal(q)
        else:
            # The base is square: the columns that are missing are drawn.
            noise = _op("randn")((*q.shape[:-1], rows - columns), dtype=q.dtype, device=q.device)
            q = _make_orthogonal(_op("cat")([q, noise], dim=-1))
        self.base = q
        # At zero both maps give the identity, and the value is the base.
        zeros = _op("zeros")(self.shape[:-2] + ((rows, columns)), dtype=q.dtype, device=q.device)
        zeros.diagonal(0, -2, -1).fill_(-1.0 if self.orthogonal_map == "householder" else 0.0)
        return zeros.mT if wide else zeros


def orthogonal(module, name="weight", orthogonal_map=None, *, use_trivialization=True):
    """Keeps a matrix orthogonal, or unitary if it is complex."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        square = weight.size(-2) == weight.size(-1) or weight.is_complex()
        orthogonal_map = "matrix_exp" if square else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}')
    step = _Orthogonal(weight, orthogonal_map, use_trivialization)
    return register_parametrization(module, name, step, unsafe=True)
