"""Writes memory.prof: a device memory profile of JAX (made with JAX 0.10.2 on two CPU devices)."""

import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp


@jax.jit
def layer(x, w):
    return jnp.tanh(x @ w)


def make_parameters(device):
    return [jax.device_put(jnp.full((256, 256), 0.5), device) for _ in range(3)]


def forward(parameters, x):
    activations = []
    for w in parameters:
        x = layer(x, w)
        activations.append(x)
    return activations


first, second = jax.devices()
parameters = make_parameters(first)
activations = forward(parameters, jax.device_put(jnp.ones((32, 256)), first))
copy = make_parameters(second)
jax.profiler.save_device_memory_profile(sys.argv[1])
