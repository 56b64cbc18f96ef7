"""Operators of PyTorch that check values computed on the device, and fail if these are zeros."""

import ctypes
import functools


def replace_operators(torch, library):
    """Makes these operators pass their own checks, or explain why they cannot."""
    answer = library.highwater_simulate_answer
    answer.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]

    def is_on_device(tensor):
        return isinstance(tensor, torch.Tensor) and tensor.is_cuda

    def finite(original):
        @functools.wraps(original)
        def operator(tensor, *args, **kwargs):
            if is_on_device(tensor):
                # It first asks whether all elements are finite, as those of a program that works are.
                answer(b"\1", 1, 1)
            return original(tensor, *args, **kwargs)

        return operator

    def by_norm(original):
        @functools.wraps(original)
        def operator(tensor, *args, **kwargs):
            try:
                return original(tensor, *args, **kwargs)
            except (ValueError, RuntimeError) as error:
                if not is_on_device(tensor) or tensor.dim() < 3:
                    raise
                why = "it chooses a method for each matrix from its norm, which a simulated GPU does not compute"
                raise NotImplementedError(f"matrix_exp of a batch is not simulated: {why}") from error

        return operator

    for owner in (torch.linalg, torch.Tensor, torch):
        for name, replacement in (("eig", finite), ("matrix_exp", by_norm)):
            if hasattr(owner, name):
                setattr(owner, name, replacement(getattr(owner, name)))
