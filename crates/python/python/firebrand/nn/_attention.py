"""Attention with several heads, as a function: projections, masks, heads, and the weights if they are wanted."""

import math

from .. import _firebrand as _C


def _op(name):
    return _C.op_function(name, False)


def _check(condition, text):
    if not condition:
        raise AssertionError(text)


def check_ranks(query, key, value, key_padding_mask, attn_mask, num_heads):
    """Whether the call is for a batch; refuses ranks that do not go together."""
    rank = query.dim()
    if rank not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {rank}-D query tensor")
    head = f"For {'batched' if rank == 3 else 'unbatched'} ({rank}-D) `query`, expected"
    _check(
        key.dim() == rank and value.dim() == rank,
        f"{head} `key` and `value` to be {rank}-D but found {key.dim()}-D and {value.dim()}-D tensors respectively",
    )
    if key_padding_mask is not None:
        _check(
            key_padding_mask.dim() == rank - 1,
            f"{head} `key_padding_mask` to be `None` or {rank - 1}-D but found {key_padding_mask.dim()}-D tensor instead",
        )
    if attn_mask is not None:
        _check(
            attn_mask.dim() in (2, 3),
            f"{head} `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.dim()}-D tensor instead",
        )
        expected = (num_heads, query.shape[0], key.shape[0])
        if rank == 2 and attn_mask.dim() == 3:
            _check(
                tuple(attn_mask.shape) == expected,
                f"Expected `attn_mask` shape to be {expected} but got {tuple(attn_mask.shape)}",
            )
    return rank == 3


def _additive(mask, name, dtype):
    """A mask as what is added to scores: where a bool is true, nothing is attended to."""
    if mask is None or mask.is_floating_point():
        return mask
    if mask.dtype is not _C.bool:
        raise AssertionError(f"only bool and floating types of {name} are supported")
    return _op("zeros")(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -math.inf)


def _in_projection(query, key, value, weight, bias, separate):
    """Queries, keys and values in the width of the heads."""
    linear = _op("linear")
    if separate is not None:
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        return [linear(x, w, b) for x, w, b in zip((query, key, value), separate, biases)]
    if key is value and query is key:
        return linear(query, weight, bias).chunk(3, dim=-1)
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return [linear(x, w, b) for x, w, b in zip((query, key, value), weight.chunk(3), biases)]


def multi_head_attention_forward(
    query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p,
    out_proj_weight, out_proj_bias, training=True, key_padding_mask=None, need_weights=True, attn_mask=None,
    use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None, v_proj_weight=None, static_k=None, static_v=None,
    average_attn_weights=True, is_causal=False,
):
    """Attention of several heads over `(length, batch, width)`; returns the output and, if wanted, the weights."""
    batched = check_ranks(query, key, value, key_padding_mask, attn_mask, num_heads)
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
            "`generate_square_subsequent_mask` to create this mask."
        )
    if not batched:
        same = query is key, key is value
        query = query.unsqueeze(1)
        key = query if same[0] else key.unsqueeze(1)
        value = key if same[1] else value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, width = query.shape
    _check(
        width == embed_dim_to_check, f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}"
    )
    head = width // num_heads
    _check(head * num_heads == width, f"embed_dim {width} not divisible by num_heads {num_heads}")
    if use_separate_proj_weight:
        _check(
            key.shape[:2] == value.shape[:2],
            f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}",
        )
        separate = (q_proj_weight, k_proj_weight, v_proj_weight)
        for name, weight in zip("qkv", separate):
            _check(weight is not None, f"use_separate_proj_weight is True but {name}_proj_weight is None")
    else:
        _check(key.shape == value.shape, f"key shape {key.shape} does not match value shape {value.shape}")
        _check(in_proj_weight is not None, "use_separate_proj_weight is False but in_proj_weight is None")
        separate = None
    q, k, v = _in_projection(query, key, value, in_proj_weight, in_proj_bias, separate)
    mask = _additive(attn_mask, "attn_mask", q.dtype)
    padding = _additive(key_padding_mask, "key_padding_mask", q.dtype)
    if mask is not None and mask.dim() == 2:
        expected = (length, key.shape[0])
        if tuple(mask.shape) != expected:
            raise RuntimeError(f"The shape of the 2D attn_mask is {mask.shape}, but should be {expected}.")
        mask = mask.unsqueeze(0)
    elif mask is not None:
        expected = (batch * num_heads, length, key.shape[0])
        if tuple(mask.shape) != expected:
            raise RuntimeError(f"The shape of the 3D attn_mask is {mask.shape}, but should be {expected}.")

    def widened(more):
        """Masks that let every query see as many further keys."""
        pad = _C.op_function("constant_pad_nd", False)
        return [None if m is None else pad(m, (0, more)) for m in (mask, padding)]

    if bias_k is not None and bias_v is not None:
        _check(static_k is None and static_v is None, "bias cannot be added to static key or value.")
        k = _op("cat")([k, bias_k.repeat(1, batch, 1)])
        v = _op("cat")([v, bias_v.repeat(1, batch, 1)])
        mask, padding = widened(1)
    else:
        _check(bias_k is None and bias_v is None, "bias_k and bias_v are given together or not at all")

    def split(x):
        return x.reshape((x.shape[0], batch * num_heads, head)).transpose(0, 1)

    q = split(q)
    for name, given in (("k", static_k), ("v", static_v)):
        if given is not None:
            _check(
                given.size(0) == batch * num_heads and given.size(2) == head,
                f"expecting static_{name} of sizes ({batch * num_heads}, ..., {head}), but got {tuple(given.shape)}",
            )
    k = split(k) if static_k is None else static_k
    v = split(v) if static_v is None else static_v
    if add_zero_attn:
        k, v = (_op("cat")([x, x.new_zeros((batch * num_heads, 1, head))], dim=1) for x in (k, v))
        mask, padding = widened(1)
    keys = k.size(1)
    if padding is not None:
        _check(
            tuple(padding.shape) == (batch, keys),
            f"expecting key_padding_mask shape of {(batch, keys)}, but got {tuple(padding.shape)}",
        )
        padding = padding.view((batch, 1, 1, keys)).expand((-1, num_heads, -1, -1)).reshape((batch * num_heads, 1, keys))
        mask = padding if mask is None else mask + padding
    dropout_p = dropout_p if training else 0.0
    weights = None
    if need_weights:
        scores = (q * math.sqrt(1.0 / head)).bmm(k.transpose(-2, -1))
        weights = (scores if mask is None else scores + mask).softmax(-1)
        if dropout_p > 0.0:
            weights = _op("dropout")(weights, dropout_p, True)
        output = weights.bmm(v)
    else:
        if mask is not None:
            mask = mask.unsqueeze(0) if mask.size(0) == 1 else mask.view((batch, num_heads, -1, keys))
        heads = [x.view((batch, num_heads, x.size(1), head)) for x in (q, k, v)]
        attention = _op("scaled_dot_product_attention")
        output = attention(*heads, mask, dropout_p).reshape((batch * num_heads, length, head))
    output = output.transpose(0, 1).reshape((length * batch, width))
    output = _op("linear")(output, out_proj_weight, out_proj_bias).view((length, batch, -1))
    if weights is not None:
        weights = weights.view((batch, num_heads, length, keys))
        if average_attn_weights:
            weights = weights.mean(dim=1)
        weights = weights if batched else weights.squeeze(0)
    return (output if batched else output.squeeze(1)), weights
