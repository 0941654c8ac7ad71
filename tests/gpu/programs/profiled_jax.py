# SPDX-License-Identifier: Apache-2.0
"""A JAX training loop with JAX's profiler over five steps, five times: what its user gets, counted by plane and line.

The profile is an XSpace protocol buffer; its planes, lines and events are counted here by walking the wire format, so
that no profile viewer is needed."""

import collections
import json
import os
import pathlib
import tempfile

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402


def varint(b, at):
    value = shift = 0
    while True:
        byte = b[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def fields(b):
    """(field number, value) of a message: bytes for length-delimited fields, ints for the others."""
    at = 0
    while at < len(b):
        key, at = varint(b, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(b, at)
        elif kind == 1:
            value, at = int.from_bytes(b[at:at + 8], "little"), at + 8
        elif kind == 5:
            value, at = int.from_bytes(b[at:at + 4], "little"), at + 4
        elif kind == 2:
            n, at = varint(b, at)
            value, at = b[at:at + n], at + n
        else:
            raise ValueError(f"wire type {kind}")
        yield key >> 3, value


def gpu_events(space):
    """{line name: events} over the GPU planes of an XSpace: XSpace.planes=1; XPlane.name=2, .lines=3; XLine.name=2, .events=4."""
    found = collections.Counter()
    for number, plane in fields(space):
        if number != 1:
            continue
        parts = list(fields(plane))
        name = next((v.decode() for n, v in parts if n == 2), "")
        if "GPU" not in name:
            continue
        for n, line in parts:
            if n == 3:
                inside = list(fields(line))
                title = next((v.decode() for m, v in inside if m == 2), "")
                found[f"{name} {title}"] += sum(m == 4 for m, _ in inside)
    return dict(sorted(found.items()))


def main():
    key = jax.random.PRNGKey(0)
    weights = [jax.random.normal(jax.random.fold_in(key, i), (512, 512)) * 0.05 for i in range(6)]
    x = jax.random.normal(key, (256, 512))

    def loss(w):
        y = x
        for one in w:
            y = jnp.tanh(y @ one)
        return jnp.mean(y * y)

    @jax.jit
    def step(w):
        value, slope = jax.value_and_grad(loss)(w)
        return [a - 0.01 * b for a, b in zip(w, slope)], value

    def train(n):
        nonlocal weights
        for _ in range(n):
            weights, value = step(weights)
        return float(value)

    train(50)
    profiles = []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as d:
            jax.profiler.start_trace(d)
            train(5)
            jax.profiler.stop_trace()
            spaces = list(pathlib.Path(d).rglob("*.xplane.pb"))
            profiles.append(gpu_events(spaces[0].read_bytes()) if spaces else {})
        last = train(50)
    print(json.dumps({"program": "profiled_jax", "profiles": profiles, "loss": last.hex()}), flush=True)


if __name__ == "__main__":
    main()
