"""Recurrent layers over whole sequences, padded or packed, and their single steps."""

import math
import numbers
import warnings

from ... import _firebrand as _C
from .. import init
from ..parameter import Parameter, _empty
from ..utils.rnn import PackedSequence
from .module import Module

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
_OPS = {mode: _C.op_function(mode.lower(), False) for mode in _GATES}


def _reordered(state, permutation):
    """The state of each sequence at the place that the permutation gives it."""
    return state if permutation is None else state.index_select(1, permutation)


def _filled(sizes, like):
    return _C.op_function("zeros", False)(sizes, dtype=like.dtype, device=like.device)


class RNNBase(Module):
    """What recurrent layers share: weights by layer and direction, checks, and the call of the op."""

    def __init__(
        self, mode, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False,
        proj_size=0, device=None, dtype=None,
    ):
        super().__init__()
        if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers greater "
                f"than 1, but got dropout={dropout} and num_layers={num_layers}",
                stacklevel=3,
            )
        if not isinstance(hidden_size, int):
            raise TypeError(f"hidden_size should be of type int, got: {type(hidden_size).__name__}")
        if hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if proj_size >= hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + mode)
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self.proj_size = proj_size
        directions = 2 if bidirectional else 1
        rows, output_size = _GATES[mode] * hidden_size, proj_size or hidden_size
        self._all_weights = []
        for layer in range(num_layers):
            width = input_size if layer == 0 else output_size * directions
            for direction in range(directions):
                sizes = {"weight_ih": (rows, width), "weight_hh": (rows, output_size)}
                if bias:
                    sizes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                if proj_size:
                    sizes["weight_hr"] = (proj_size, hidden_size)
                suffix = f"_l{layer}" + ("_reverse" if direction else "")
                for name, size in sizes.items():
                    setattr(self, name + suffix, Parameter(_empty(*size, dtype=dtype, device=device)))
                self._all_weights.append([name + suffix for name in sizes])
        self.reset_parameters()

    @property
    def all_weights(self):
        """The weights of every layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights(self):
        return [getattr(self, name) for names in self._all_weights for name in names]

    def reset_parameters(self):
        """Draws new parameters."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self):
        """Does nothing: the kernels take each weight where it is."""

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        defaults = dict(num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False)
        if self.proj_size:
            text += f", proj_size={self.proj_size}"
        for name, default in defaults.items():
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text

    # ---- checks

    def check_input(self, input, batch_sizes):
        """Refuses inputs of other ranks or widths."""
        rank = 2 if batch_sizes is not None else 3
        if input.dim() != rank:
            raise RuntimeError(f"input must have {rank} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}"
            )

    def _state_size(self, input, batch_sizes, width):
        batch = int(batch_sizes[0]) if batch_sizes is not None else input.size(0 if self.batch_first else 1)
        return (self.num_layers * (2 if self.bidirectional else 1), batch, width)

    def get_expected_hidden_size(self, input, batch_sizes):
        """The sizes that a state has for this input."""
        return self._state_size(input, batch_sizes, self.proj_size or self.hidden_size)

    def check_hidden_size(self, hx, expected_hidden_size, msg="Expected hidden size {}, got {}"):
        """Refuses a state of other sizes."""
        if tuple(hx.size()) != tuple(expected_hidden_size):
            raise RuntimeError(msg.format(tuple(expected_hidden_size), list(hx.size())))

    def check_forward_args(self, input, hidden, batch_sizes):
        """Refuses inputs and states that do not fit the layer."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx, permutation):
        """The state with the sequences in another order."""
        return _reordered(hx, permutation)

    # ---- the call


    def _check_rank(self, hx, batched):
        rank, kind = (3, "batched") if batched else (2, "unbatched")
        if hx.dim() != rank:
            raise RuntimeError(f"For {kind} {rank}-D input, hx should also be {rank}-D but got {hx.dim()}-D tensor")

    def _initial(self, input, batch_sizes):
        return _filled(self.get_expected_hidden_size(input, batch_sizes), input)

    def _result(self, found):
        return found[0], found[1]

    def forward(self, input, hx=None):
        packed = input if isinstance(input, PackedSequence) else None
        batch_sizes = batched = None
        if packed is not None:
            input, batch_sizes, sorted_indices, unsorted_indices = packed
        else:
            sorted_indices = unsorted_indices = None
            if input.dim() not in (2, 3):
                raise ValueError(f"{self._get_name()}: Expected input to be 2D or 3D, got {input.dim()}D instead")
            batched = input.dim() == 3
            batch_at = 0 if self.batch_first else 1
            if not batched:
                input = input.unsqueeze(batch_at)
            if hx is not None:
                self._check_rank(hx, batched)
                if not batched:
                    hx = self._mapped(hx, lambda state: state.unsqueeze(1))
        if hx is None:
            hx = self._initial(input, batch_sizes)
        else:
            # The sequences of a packed input stand in the order of their lengths.
            hx = self.permute_hidden(hx, sorted_indices)
        self.check_forward_args(input, hx, batch_sizes)
        common = (self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        state = tuple(hx) if isinstance(hx, (tuple, list)) else hx
        if packed is not None:
            found = _OPS[self.mode](input, batch_sizes, state, *common)
        else:
            found = _OPS[self.mode](input, state, *common, self.batch_first)
        output, state = self._result(found)
        if packed is not None:
            output = PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices)
        elif not batched:
            output = output.squeeze(batch_at)
            return output, self._mapped(state, lambda state: state.squeeze(1))
        return output, self.permute_hidden(state, unsorted_indices)

    def _mapped(self, hx, function):
        return function(hx)


class RNN(RNNBase):
    """Elman's network: `h' = tanh(W_ih x + b_ih + W_hh h + b_hh)`, or with relu."""

    def __init__(self, *args, **kwargs):
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if len(args) > 3:
            self.nonlinearity, args = args[3], (*args[:3], *args[4:])
        else:
            self.nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if self.nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{self.nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__("RNN_" + self.nonlinearity.upper(), *args, **kwargs)


class GRU(RNNBase):
    """Gated recurrent units."""

    def __init__(self, *args, **kwargs):
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)


class LSTM(RNNBase):
    """Long short-term memory; its state is the pair of what it gives out and what it remembers."""

    def __init__(self, *args, **kwargs):
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(self, input, batch_sizes):
        """The sizes that the memory has for this input."""
        return self._state_size(input, batch_sizes, self.hidden_size)

    def check_forward_args(self, input, hidden, batch_sizes):
        self.check_input(input, batch_sizes)
        self.check_hidden_size(
            hidden[0], self.get_expected_hidden_size(input, batch_sizes), "Expected hidden[0] size {}, got {}"
        )
        self.check_hidden_size(
            hidden[1], self.get_expected_cell_size(input, batch_sizes), "Expected hidden[1] size {}, got {}"
        )

    def permute_hidden(self, hx, permutation):
        return hx if permutation is None else tuple(_reordered(state, permutation) for state in hx)

    def _check_rank(self, hx, batched):
        rank, kind = (3, "batched") if batched else (2, "unbatched")
        if hx[0].dim() != rank or hx[1].dim() != rank:
            raise RuntimeError(
                f"For {kind} {rank}-D input, hx and cx should also be {rank}-D but got "
                f"({hx[0].dim()}-D, {hx[1].dim()}-D) tensors"
            )

    def _initial(self, input, batch_sizes):
        return (
            _filled(self.get_expected_hidden_size(input, batch_sizes), input),
            _filled(self.get_expected_cell_size(input, batch_sizes), input),
        )

    def _result(self, found):
        return found[0], (found[1], found[2])

    def _mapped(self, hx, function):
        return tuple(function(state) for state in hx)


class RNNCellBase(Module):
    """What single steps share."""

    def __init__(self, input_size, hidden_size, bias, num_chunks, device=None, dtype=None):
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(_empty(rows, input_size, dtype=dtype, device=device))
        self.weight_hh = Parameter(_empty(rows, hidden_size, dtype=dtype, device=device))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(_empty(rows, dtype=dtype, device=device)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draws new parameters."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            text += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text

    def _step(self, op, input, hx, states=1):
        """Calls the op on a batch; the state is zero if none is given."""
        name = self._get_name()
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        given = () if hx is None else tuple(hx) if states > 1 else (hx,)
        for k, state in enumerate(given):
            if state.dim() not in (1, 2):
                where = f"hx[{k}]" if states > 1 else "hidden"
                raise ValueError(f"{name}: Expected {where} to be 1D or 2D, got {state.dim()}D instead")
        batched = input.dim() == 2
        if not batched:
            input, given = input.unsqueeze(0), tuple(state.unsqueeze(0) for state in given)
        if not given:
            given = (_filled((input.size(0), self.hidden_size), input),) * states
        state = given if states > 1 else given[0]
        found = _C.op_function(op, False)(input, state, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        if batched:
            return found
        return tuple(part.squeeze(0) for part in found) if states > 1 else found.squeeze(0)


class RNNCell(RNNCellBase):
    """One step of Elman's network."""

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input, hx=None):
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(f"rnn_{self.nonlinearity}_cell", input, hx)


class LSTMCell(RNNCellBase):
    """One step of long short-term memory."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input, hx=None):
        return self._step("lstm_cell", input, hx, states=2)


class GRUCell(RNNCellBase):
    """One step of gated recurrent units."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input, hx=None):
        return self._step("gru_cell", input, hx)
