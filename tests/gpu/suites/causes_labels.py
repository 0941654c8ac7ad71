# SPDX-License-Identifier: Apache-2.0
"""What is true of the programs of programs/causes: the labels of the suite `causes`. A label holds only where its proofs do.

The cause is the coarse one of analyzer/verdict/src/causes; `kind` is what it is in detail, for the day a verdict says so too.
"""

from dataclasses import dataclass, field

LEAST_WIN = 0.15  # a fix that wins less proves nothing
MOST_HARMLESS = 0.10  # a habit whose removal wins more is not harmless (as for gpt_bound in suites/verdicts.py)

# Verdicts that accuse nothing on the host.
HEALTHY = ("GPU-BOUND", "EFFICIENT", "SMALL-KERNELS")
SILENT = (*HEALTHY, "MIXED", "INCONCLUSIVE")

WINS, WINS_LITTLE = "wins", "wins little"


@dataclass(frozen=True)
class Label:
    """`causes`: any of them is right for the slow form. `proofs`: form -> what it must win over the slow form."""

    causes: tuple
    kind: str = ""
    proofs: dict = field(default_factory=lambda: {"fixed": WINS})
    coarse: tuple = ()  # not wrong, but less than could be known: fails, and is no false accusation
    both: bool = False  # all of `causes` must be named or found
    forbidden: tuple = ()  # must not even stand second
    fixed: tuple = HEALTHY  # right for the fixed form; () where it is not recorded
    beside: tuple = ()  # right for the fixed form as a part of a MIXED one, beside what is in `fixed`
    site: bool = False  # a line of Python is the cause
    other: bool = False  # no PyTorch
    gpus: int = 1
    alone: bool = False  # its verdict rests on counters of the whole GPU, which no other process may use
    native: bool = False  # programs/<name>.cu, built on the machine; no Python, so no line

    @property
    def healthy(self):
        """Healthy, or bad only to look at."""
        return bool(self.forbidden) or self.causes == HEALTHY


def slow(*causes, **more):
    return Label(causes, **{"site": True, **more})


def ok(*forbidden, causes=HEALTHY, proofs=None, **more):
    return Label(causes, proofs={"bare": WINS_LITTLE} if proofs is None else proofs, forbidden=forbidden, fixed=(), **more)


# After these fixes launching may be what is left where the host is slow that day; the wait that was
# fixed may not.
OR_LAUNCH = (*HEALTHY, "LAUNCH")

# ... or the wait that no graph takes away.
OR_WAIT = (*OR_LAUNCH, "SYNC")
COLLECTIVES = ("COMM", "MIXED", *HEALTHY)

LABELS = {
    "loader_no_workers": slow("INPUT-MAIN", "INPUT", kind="no-workers", coarse=("HOST",)),
    "loader_two_workers": slow("INPUT-WORKERS", kind="too-few-workers", coarse=("INPUT", "HOST")),
    "loader_slow_reads": slow("INPUT-STORAGE", kind="slow-reads", coarse=("INPUT", "HOST")),
    "loader_generator": slow("INPUT-MAIN", "INPUT", "HOST", kind="no-loader"),
    "loader_hf_collate": slow("INPUT-COLLATE", "INPUT-MAIN", "INPUT", kind="collate", coarse=("HOST",)),
    "sync_item_layers": slow("SYNC", kind="item", fixed=OR_LAUNCH),
    "sync_print_loss": slow("SYNC", kind="print", fixed=OR_LAUNCH),
    "sync_timing": slow("SYNC", kind="synchronize", fixed=OR_LAUNCH),
    "sync_eval_metric": slow("SYNC", kind="cpu", fixed=OR_LAUNCH),
    "sync_bool_mask": slow("SYNC", kind="mask", fixed=OR_LAUNCH),
    "copy_pageable": slow("COPY", kind="pageable"),
    "copy_stream_wait": slow("COPY", "DEVICE-WAIT", kind="copy-stream"),
    "launch_tiny": slow("LAUNCH", kind="tiny-kernels", fixed=HEALTHY, site=False),
    "launch_optimizer": slow("LAUNCH-OPTIMIZER", "LAUNCH", kind="optimizer"),
    "launch_graph_breaks": slow("GRAPH-BREAKS", kind="graph-breaks", coarse=("LAUNCH",)),
    # (the fixed form casts each weight once a step still, a quarter of its time, which a model in
    # bfloat16 would not)
    "casts_weights": slow("CASTS", kind="casts", fixed=(*OR_LAUNCH, "CASTS"), site=False),
    "host_python": slow("HOST", kind="python"),
    "host_native": slow("NATIVE-CPU", "HOST", kind="native"),
    "host_gc": slow("GC", "HOST", kind="gc"),
    "host_gil": slow("GIL", "HOST", kind="gil"),
    "host_checkpoint": slow("FILE-IO", "HOST", kind="checkpoint"),
    "host_log_flush": slow("LOGGING", "FILE-IO", "HOST", kind="log"),
    "host_stall_50": slow("HOST", kind="stall"),
    "alloc_empty_cache": slow("ALLOC", kind="empty-cache", fixed=OR_LAUNCH),
    # Graphs leave what they cannot hold, and their own launch.
    "launch_branch": slow("LAUNCH", kind="graph-branch", fixed=OR_WAIT, site=False),
    "launch_policy": slow("LAUNCH", kind="graph-launch", fixed=OR_WAIT, site=False),
    "launch_sampling": slow("LAUNCH", kind="graph-sampling", fixed=OR_WAIT, site=False),
    "launch_cell": slow("LAUNCH", kind="graph-part", fixed=OR_WAIT, site=False),
    # (what is left then is Python: guards, and the optimizer's)
    "launch_reduce_overhead": slow("LAUNCH", kind="graph-part", fixed=(*OR_WAIT, "HOST"), site=False),
    "jax_numpy": slow("NATIVE-CPU", "HOST", kind="numpy", fixed=(*OR_LAUNCH, "COPY"), other=True),
    "jax_arrays": slow("NATIVE-CPU", "HOST", kind="numpy", fixed=OR_WAIT, other=True),
    "jax_pieces": slow("HOST", kind="pieces", fixed=OR_WAIT, other=True),
    "jax_unjitted": slow("LAUNCH", "HOST", kind="unjitted", fixed=OR_LAUNCH, site=False, other=True),
    "jax_optimizer": slow("LAUNCH", "HOST", kind="unjitted", fixed=OR_WAIT, site=False, other=True),
    "copy_small_in": slow("SYNC", "COPY", kind="small-copies"),
    "copy_small_out": slow("SYNC", "COPY", kind="small-copies", fixed=OR_WAIT),
    "copy_samples": slow("COPY", "SYNC", kind="small-copies"),
    "copy_both_ways": slow("COPY", kind="pageable"),
    "copy_pages": slow("COPY", "SYNC", kind="pageable", fixed=(*OR_WAIT, "COPY")),
    "comm_late": slow("COMM", kind="late-rank", fixed=(*OR_LAUNCH, "COMM"), site=False, gpus=2),
    "two_input_sync": slow("INPUT-MAIN", "SYNC", coarse=("HOST",), both=True, fixed=OR_LAUNCH,
                           proofs={"workers": WINS, "no_sync": WINS, "fixed": WINS}),
    "two_copy_host": slow("COPY", "HOST", both=True, proofs={"pinned": WINS, "no_python": WINS, "fixed": WINS}),
    "jax_host": slow("HOST", kind="python", other=True),
    # (dispatching in JAX is no launching only: on a slow host its fixed form was MIXED, LAUNCH +
    # HOST; H200, ee87ef9, 2.21 ms a step of 1.92)
    "jax_float": slow("SYNC", kind="item", fixed=OR_LAUNCH, beside=("HOST",), other=True),
    "native_sync": slow("SYNC", kind="synchronize", fixed=OR_LAUNCH, site=False, other=True, native=True),
    "cupy_item": slow("SYNC", kind="item", fixed=OR_LAUNCH, other=True),
    "ok_gemm": ok(),
    "ok_graph": ok(proofs={}),
    "ok_compile": ok(proofs={}),
    "ok_item_launch": ok("SYNC", causes=("LAUNCH",), proofs={"without": WINS_LITTLE, "fixed": WINS}),
    "ok_pageable_hidden": ok("COPY"),
    "ok_one_worker": ok("INPUT", "HOST"),
    "ok_synchronize": ok("SYNC"),
    "ok_gc_frozen": ok("HOST"),
    "ok_log_rarely": ok("SYNC", "HOST"),
    "ok_once_evaluation": ok("SYNC", "LAUNCH", "HOST", proofs={}),
    "ok_once_setup": ok("FILE-IO", "COPY", "HOST", proofs={}),
    "ok_once_teardown": ok("FILE-IO", "COPY", "HOST", proofs={}),
    "ok_thread": ok("HOST"),
    "ok_side_stream": ok("DEVICE-WAIT", "COPY"),
    # Collectives that run alone: hiding them behind computing wins little, for both take longer
    # beside each other.
    "comm_gather": ok("SYNC", "HOST", causes=COLLECTIVES, proofs={"fixed": WINS_LITTLE}, gpus=2),
    "comm_shards": ok("SYNC", "HOST", causes=COLLECTIVES, proofs={"fixed": WINS_LITTLE}, gpus=2),
    "comm_ddp": ok("SYNC", "HOST", causes=COLLECTIVES, proofs={"fixed": WINS_LITTLE}, gpus=2),
    "ok_jax_float": ok("SYNC", other=True),
    "ok_cupy_matmul": ok(proofs={}, other=True),
}
