"""Arguments that may be one number or one per dimension, and prefixes of states."""


def _ntuple(n):
    def parse(value):
        return tuple(value) if hasattr(value, "__iter__") else (value,) * n

    parse.__name__ = f"to_{n}_tuple"
    return parse


_single, _pair, _triple, _quadruple = map(_ntuple, (1, 2, 3, 4))


def _reverse_repeat_tuple(values, n):
    """Each value `n` times, last first, as padding is given."""
    return tuple(v for v in reversed(values) for _ in range(n))


def consume_prefix_in_state_dict_if_present(state_dict, prefix):
    """Takes a prefix off the names of a state, in place."""
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key[len(prefix) :]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        for key in list(metadata):
            if key in (prefix.replace(".", ""), prefix):
                if key == prefix.replace(".", ""):
                    metadata[""] = metadata.pop(key)
            elif key.startswith(prefix):
                metadata[key[len(prefix) :]] = metadata.pop(key)
