"""JAX beyond the primary: one array, products, a gradient.    jax_pool.py <primary GiB> <pool bytes or 0>

The caller sets `XLA_PYTHON_CLIENT_PREALLOCATE` and `XLA_PYTHON_CLIENT_MEM_FRACTION`; kernels are chosen without timing, so that bits agree.
"""

import os
import pathlib
import sys

os.environ.setdefault("XLA_FLAGS", "--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tell import check, digest  # noqa: E402


@jax.jit
def scramble(x):
    x = (x ^ (x >> 15)) * jnp.uint32(2246822519)
    return x ^ (x >> 13)


def loss(weights, batch):
    for weight in weights:
        batch = jnp.tanh(batch @ weight)
    return (batch**2).mean()


def main():
    primary, pool_bytes = int(sys.argv[1]) << 30, int(sys.argv[2])
    device = jax.devices()[0]
    limit = device.memory_stats()["bytes_limit"]
    check("one GPU", device.platform == "gpu" and jax.device_count() == 1, f"{device.device_kind}, limit {limit >> 20} MiB")
    if pool_bytes:
        check("the limit is of the pool", primary < limit <= pool_bytes)
    count = primary * 5 // 4 // 4
    numbers = scramble(jnp.arange(count, dtype=jnp.uint32))
    digest("scrambled", numpy.asarray(numbers[:: 1 << 12]))
    digest("sum", numpy.asarray(jnp.sum(numbers)))
    held = device.memory_stats()["bytes_in_use"]
    check("more than the primary is held", held > primary, f"{held >> 20} MiB")
    square = lambda part: (part.reshape(4096, 4096) % 97).astype(jnp.float32) / 97 - 0.5
    weights = [square(numbers[: 1 << 24]), square(numbers[-(1 << 24) :])]
    batch = square(numbers[1 << 24 : 1 << 25])
    digest("product over the seam", numpy.asarray(weights[0] @ weights[1]))
    value, gradients = jax.jit(jax.value_and_grad(loss))(weights, batch)
    check("gradient", bool(jnp.isfinite(value)), f"loss {float(value):.6f}")
    for at, gradient in enumerate(gradients):
        digest(f"gradient {at}", numpy.asarray(gradient))


main()
