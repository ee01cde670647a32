"""The MTP runner with tables, allocator, lengths and metadata on npu, and the model's compute on the CPU."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("transformers")

STEPS = (
    "build_compress_metadata_prefill",
    "build_compress_metadata_verify",
    "build_verify_step",
    "build_draft_steps",
    "advance_step",
)
ALLOCATIONS = ("alloc_extend", "reserve_extend", "share_prefix", "evict", "free")


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlapped"])
def test_the_same_tokens_as_with_everything_on_the_cpu(sim, ops, overlap):
    from mtp.small_models import build, layout_of, prompts_of

    from dsv4_npu_ops.mtp.runner import Runner

    torch.set_num_threads(1)  # a model this small only loses by more
    target, nextn = build(seed=1)
    first, other = prompts_of([120, 9], seed=3)
    prompts = [first, [*first[:118], *other]]

    def generate(device):
        runner = Runner(target, nextn, replace(layout_of(16), device=device), bucket=2)
        return runner.generate(prompts, 6, [3, 4], 130, arrivals=[0, 1], share_prefixes=True, overlap=overlap)

    want, _ = generate("cpu")
    torch.npu.synchronize()
    sim.reset_counters()
    got, stats = generate("npu")
    counters, calls = sim.counters(), stats.ops.calls
    assert got == want
    assert not any(name.startswith("operator.") for name in counters)
    assert not any(stats.final_pages.values())

    def copies(direction):
        return sum(
            count for name, count in counters.items() if name.startswith(f"copy.{direction}.") and "bytes" not in name
        )

    # All that leaves the device is what the model is fed, and the pages that it copies for a prefix: two lists a pool.
    assert 0 <= copies("d2h") - calls["copy_to_model"] <= 10 * calls["share_prefix"]
    assert calls["copy_to_model"] > 0 and calls["share_prefix"] == 1 and stats.shared_tokens == 117
    # One copy a step for its rows and lengths, at most one an allocation for its segments; and the set-up.
    setup = 6 + 1 + 2  # tables, free pages, frequencies of two RoPE bases
    assert copies("h2d") <= setup + calls["copy_to_ops"] + sum(calls[name] for name in STEPS + ALLOCATIONS)
    assert overlap == (calls["advance_step"] > 0) == (calls["copy_to_ops"] > 0)
