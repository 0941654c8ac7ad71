# SPDX-License-Identifier: Apache-2.0
"""What is true of the programs of programs/causes whose GPU is never idle: part `gpu` of the suite `causes`. Their causes are those of
kernels; that the run is GPU-bound is right, and less than could be known."""

from suites.causes_labels import HEALTHY, WINS_LITTLE, ok, slow

# What no kernel of a healthy program is accused of.
ACCUSED = ("FP32-MATMUL", "MEMORY-BOUND", "ATTENTION-UNFUSED", "LAYOUT", "ALIGNMENT", "LOW-OCCUPANCY", "RECOMPUTE", "THROTTLED", "CASTS")


def wasted(*causes, fixed=(), **more):
    """After some fixes another cause of kernels is left."""
    return slow(*causes, coarse=HEALTHY, fixed=(*HEALTHY, *fixed), **more)


def well(**more):
    return ok(*ACCUSED, **{"proofs": {}, **more})


GPU_BOUND = {
    "gpu_fp32_products": wasted("FP32-MATMUL", kind="tf32"),
    "gpu_fp32_convolutions": wasted("FP32-MATMUL", kind="tf32", fixed=("LAYOUT",)),
    "gpu_no_autocast": wasted("FP32-MATMUL", kind="autocast", fixed=("MEMORY-BOUND",)),
    "gpu_elementwise": wasted("MEMORY-BOUND", kind="activation"),
    "gpu_norm": wasted("MEMORY-BOUND", kind="norm"),
    "gpu_loss": wasted("MEMORY-BOUND", kind="loss", fixed=("MEMORY-BOUND",)),
    # (what is left is the loss, in six operations)
    "gpu_attention": wasted("ATTENTION-UNFUSED", kind="training", fixed=("MEMORY-BOUND",)),
    "gpu_attention_inference": wasted("ATTENTION-UNFUSED", kind="inference"),
    "gpu_layout": wasted("LAYOUT", kind="nchw", fixed=("MEMORY-BOUND",)),
    "gpu_transposes": wasted("LAYOUT", kind="transposes"),
    "gpu_vocabulary": wasted("ALIGNMENT", kind="vocabulary"),
    "gpu_width": wasted("ALIGNMENT", kind="width"),
    "gpu_small_batch": wasted("LOW-OCCUPANCY", kind="batch", alone=True),
    "gpu_few_blocks": wasted("LOW-OCCUPANCY", kind="blocks", alone=True),
    "gpu_llm_block": wasted("MEMORY-BOUND", kind="block", fixed=("MEMORY-BOUND",)),
    "gpu_recompute": wasted("RECOMPUTE", kind="checkpoint"),
    "ok_gpu_tf32": well(),
    "ok_gpu_few_fp32": well(proofs={"bare": WINS_LITTLE}),
    "ok_gpu_triad": well(),
    "ok_gpu_embedding": well(),
    "ok_gpu_fused": well(),
    "ok_gpu_attention": well(),
    "ok_gpu_recompute": well(proofs={"bare": WINS_LITTLE}),
    "ok_gpu_odd_head": well(proofs={"bare": WINS_LITTLE}),
    # (in channels_last the residual's gradient is not, and norms take longer by that)
    "ok_gpu_resnet": well(proofs={"bare": WINS_LITTLE}),
    "ok_gpu_sort": well(),
}
