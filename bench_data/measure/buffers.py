"""Random operands cut out of one large buffer per dtype, so that a new shape costs no new random numbers.

Random data matter: on zeros a GPU draws less power, clocks higher and looks faster than it is.
"""

_ALIGN_BYTES = 256
_FILL_CHUNK = 1 << 26


class Arena:
    """Grows per dtype to the largest case seen; views of one case never overlap, views of two cases may."""

    def __init__(self, torch, device):
        self.torch = torch
        self.device = device
        self.generator = torch.Generator(device=device)
        self.generator.manual_seed(7)
        self._buffers = {}
        self._used = {}

    def begin_case(self):
        """Forget the views of earlier cases, which are no longer in use."""
        self._used = {}

    def clear(self):
        """Give all memory back."""
        self._buffers = {}
        self._used = {}

    def take(self, dtype, shapes):
        """Non-overlapping random contiguous tensors of the given shapes, one growth at most for all of them."""
        align = _ALIGN_BYTES // self.torch.empty((), dtype=dtype).element_size()
        sizes = [_product(shape) for shape in shapes]
        padded = [-(-size // align) * align for size in sizes]
        start = self._used.get(dtype, 0)
        self._grow(dtype, start + sum(padded))
        views = []
        for shape, size, step in zip(shapes, sizes, padded):
            views.append(self._buffers[dtype].narrow(0, start, size).view(shape))
            start += step
        self._used[dtype] = start
        return views

    def _grow(self, dtype, elements):
        buffer = self._buffers.get(dtype)
        if buffer is not None and buffer.numel() >= elements:
            return
        if self._used.get(dtype, 0) == 0:
            # Nothing of this dtype is in use: free first, or growing would need the old and the new at once.
            self._buffers.pop(dtype, None)
        buffer = None
        grown = self.torch.empty(elements, dtype=dtype, device=self.device)
        for begin in range(0, elements, _FILL_CHUNK):
            part = grown.narrow(0, begin, min(_FILL_CHUNK, elements - begin))
            noise = self.torch.randn(part.numel(), generator=self.generator, device=self.device)
            part.copy_(noise)
        self._buffers[dtype] = grown


def _product(shape):
    size = 1
    for extent in shape:
        size *= extent
    return size
