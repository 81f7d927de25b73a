"""Small kernels in one launch each, in Triton, which torch brings along on Linux. `FUSED` is empty without it."""

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

FUSED = {}

if triton is not None:

    @triton.jit
    def _rms_norm(x, residual, weight, out, width, epsilon, ADD: tl.constexpr, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        at = tl.arange(0, BLOCK)
        inside = at < width
        values = tl.load(x + row * width + at, mask=inside, other=0.0).to(tl.float32)
        if ADD:
            values += tl.load(residual + row * width + at, mask=inside, other=0.0).to(tl.float32)
            tl.store(residual + row * width + at, values.to(tl.bfloat16), mask=inside)
        scale = tl.rsqrt(tl.sum(values * values, axis=0) / width + epsilon)
        gain = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + row * width + at, (values * scale * gain).to(tl.bfloat16), mask=inside)

    @triton.jit
    def _silu_and_mul(x, out, width, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = at < width
        gate = tl.load(x + row * 2 * width + at, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(x + row * 2 * width + width + at, mask=inside, other=0.0).to(tl.float32)
        result = gate / (1.0 + tl.exp(-gate)) * value
        tl.store(out + row * width + at, result.to(tl.bfloat16), mask=inside)

    @triton.jit
    def _rotary(heads, cosine, sine, positions, num_heads, stride, HALF: tl.constexpr, HEADS: tl.constexpr):
        token = tl.program_id(0).to(tl.int64)
        position = tl.load(positions + token)
        at = tl.arange(0, HALF)
        cos = tl.load(cosine + position * HALF + at).to(tl.float32)[None, :]
        sin = tl.load(sine + position * HALF + at).to(tl.float32)[None, :]
        head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
        start = heads + token * stride + head[:, None] * (2 * HALF) + at[None, :]
        inside = (head < num_heads)[:, None]
        first = tl.load(start, mask=inside, other=0.0).to(tl.float32)
        second = tl.load(start + HALF, mask=inside, other=0.0).to(tl.float32)
        tl.store(start, (first * cos - second * sin).to(tl.bfloat16), mask=inside)
        tl.store(start + HALF, (second * cos + first * sin).to(tl.bfloat16), mask=inside)

    @triton.jit
    def _cache(keys, values, key_cache, value_cache, slots, width, stride, BLOCK: tl.constexpr):
        token = tl.program_id(0).to(tl.int64)
        slot = tl.load(slots + token)
        at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = at < width
        tl.store(key_cache + slot * width + at, tl.load(keys + token * stride + at, mask=inside), mask=inside)
        tl.store(value_cache + slot * width + at, tl.load(values + token * stride + at, mask=inside), mask=inside)

    @triton.jit
    def _quantise(x, out, scales, width, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        at = tl.arange(0, BLOCK)
        inside = at < width
        values = tl.load(x + row * width + at, mask=inside, other=0.0).to(tl.float32)
        scale = tl.maximum(tl.max(tl.abs(values), axis=0), 1e-12) / 448.0
        tl.store(scales + row, scale)
        tl.store(out + row * width + at, (values / scale).to(tl.float8e4nv), mask=inside)

    def _warps(block):
        return max(1, min(16, block // 512))

    def _norm(torch, x, residual, weight):
        out, width = torch.empty_like(x), x.shape[1]
        block = triton.next_power_of_2(width)
        _rms_norm[(x.shape[0],)](
            x, residual, weight, out, width, 1e-6, ADD=residual is not x, BLOCK=block, num_warps=_warps(block)
        )
        return out

    def _activation(torch, x):
        width = x.shape[1] // 2
        out = x.new_empty(x.shape[0], width)
        _silu_and_mul[(x.shape[0], triton.cdiv(width, 1024))](x, out, width, BLOCK=1024)
        return out

    def _rotate(torch, heads, cosine, sine, positions):
        tokens, num_heads, head_dim = heads.shape
        _rotary[(tokens, triton.cdiv(num_heads, 8))](
            heads, cosine, sine, positions, num_heads, heads.stride(0), HALF=head_dim // 2, HEADS=8
        )
        return heads

    def _write_cache(torch, keys, values, key_cache, value_cache, slots):
        width = keys.shape[1]
        _cache[(keys.shape[0], triton.cdiv(width, 1024))](
            keys, values, key_cache, value_cache, slots, width, keys.stride(0), BLOCK=1024
        )
        return key_cache, value_cache

    def _quantise_rows(torch, x):
        out = torch.empty_like(x, dtype=torch.float8_e4m3fn)
        scales = torch.empty(x.shape[0], 1, dtype=torch.float32, device=x.device)
        block = triton.next_power_of_2(x.shape[1])
        _quantise[(x.shape[0],)](x, out, scales, x.shape[1], BLOCK=block, num_warps=_warps(block))
        return out, scales

    FUSED = {
        "rms_norm": lambda torch, x, weight: _norm(torch, x, x, weight),
        "fused_add_rms_norm": _norm,
        "silu_and_mul": _activation,
        "rotary": _rotate,
        "reshape_and_cache": _write_cache,
        "quantise_fp8": _quantise_rows,
    }
