"""Sequences of different lengths in one tensor."""

from collections import namedtuple

from ... import _firebrand as _C
from ..._firebrand import Tensor


def _op(name):
    return _C.op_function(name, False)


def invert_permutation(permutation):
    """What undoes a permutation."""
    if permutation is None:
        return None
    output = _op("empty_like")(permutation)
    output.scatter_(0, permutation, _op("arange")(0, permutation.numel()))
    return output


class PackedSequence(namedtuple("PackedSequence", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"])):
    """Steps of several sequences, one after the other, and how many sequences have each step."""

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes is not None:
            if batch_sizes.device.type != "cpu":
                raise ValueError("batch_sizes should always be on CPU.")
            return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)
        if not isinstance(data, (list, tuple)) or len(data) != 2:
            raise AssertionError("expected batch_sizes, or data and batch_sizes as one pair")
        return super().__new__(cls, data[0], data[1], sorted_indices, unsorted_indices)

    @property
    def is_cuda(self):
        return False

    def is_pinned(self):
        return False

    def pin_memory(self):
        """Itself: memory is not pinned."""
        return self

    def to(self, *args, **kwargs):
        """Its data with another dtype or on another device."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        return type(self)(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def cpu(self, *args, **kwargs):
        return self.to(device="cpu")

    def _converted(name):
        def convert(self):
            return self.to(getattr(self.data, name)().dtype)

        convert.__name__ = name
        convert.__doc__ = f"Its data by `{name}`."
        return convert

    double, float, half, long, int, short, char, byte = map(
        _converted, ("double", "float", "half", "long", "int", "short", "char", "byte")
    )
    del _converted


def pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):
    """Packs sequences that were padded to one length."""
    if not isinstance(lengths, Tensor):
        lengths = _C.tensor(list(lengths), dtype=_C.int64)
    if enforce_sorted:
        sorted_indices = None
        if bool((lengths[1:] > lengths[:-1]).any().item()):
            raise RuntimeError(
                "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
                "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement."
            )
    else:
        lengths, sorted_indices = _op("sort")(lengths, descending=True)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
    data, batch_sizes = _op("_pack_padded_sequence")(input, lengths, batch_first)
    return PackedSequence(data, batch_sizes, sorted_indices, None)


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    """Pads packed sequences to one length; gives their lengths too."""
    longest = sequence.batch_sizes.size(0)
    if total_length is not None:
        if total_length < longest:
            raise ValueError(
                f"Expected total_length to be at least the length of the longest sequence in input, but got total_length="
                f"{total_length} and max sequence length being {longest}"
            )
        longest = total_length
    padded, lengths = _op("_pad_packed_sequence")(sequence.data, sequence.batch_sizes, batch_first, padding_value, longest)
    if sequence.unsorted_indices is not None:
        return padded.index_select(0 if batch_first else 1, sequence.unsorted_indices), lengths[sequence.unsorted_indices]
    return padded, lengths


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Sequences of different lengths in one tensor."""
    if not isinstance(sequences, (list, tuple, Tensor)) and not hasattr(sequences, "__iter__"):
        raise RuntimeError(f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}")
    if isinstance(sequences, Tensor):
        sequences = sequences.unbind(0)
    return _op("pad_sequence")(list(sequences), batch_first, padding_value, padding_side)


def unpad_sequence(padded_sequences, lengths, batch_first=False):
    """Sequences without their padding."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [sequence[: int(n)] for sequence, n in zip(padded_sequences, lengths)]


def pack_sequence(sequences, enforce_sorted=True):
    """Packs sequences of different lengths."""
    lengths = _C.tensor([v.size(0) for v in sequences])
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences):
    """The sequences that were packed."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
