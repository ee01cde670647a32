"""Trains the small DeepSeek-V4 model and its MTP layer that the demo and the tests use.

    python examples/tiny_checkpoint/train.py --out FOLDER --minutes 45

Target and MTP layer learn together from the Python standard library's sources, one token a byte. Each worker trains
its own copy on its own batches with one thread; the copies are averaged every few steps.
"""

import argparse
import copy
import math
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from corpus import token_stream
from model import ExpertBalance, build
from muon import Muon
from torch import distributed as dist
from torch import multiprocessing, nn
from torch.nn import functional as F
from transformers import DeepseekV4ForCausalLM
from unroll import unrolled_logits

from dsv4_npu_ops.mtp.checkpoint import save_checkpoint
from dsv4_npu_ops.mtp.nextn import NextnLayer, causal_window_mask, target_streams

SEED = 20260
SYNC_STEPS = 10
SAVE_SECONDS = 480
# Passes after the first cost as much as half the target: every third step trains them, once the first is worth feeding.
UNROLL_FROM, UNROLL_EVERY, UNROLL_PASSES = 0.1, 3, 3
MTP_WEIGHTS = (0.3, 0.2, 0.2)


@dataclass
class Schedule:
    """Warm-up, then cosine; progress is counted in steps or in minutes, whichever is further."""

    steps: int
    minutes: float
    warmup_steps: int = 100

    def progress(self, step: int, started: float) -> float:
        return min(1.0, max(step / self.steps, (time.monotonic() - started) / 60 / self.minutes))

    def factor(self, step: int, progress: float) -> float:
        """What the peak rates are multiplied with."""
        return min(1.0, (step + 1) / self.warmup_steps) * (0.03 + 0.97 * (1 + math.cos(math.pi * progress)) / 2)


def losses(
    target: DeepseekV4ForCausalLM, nextn: NextnLayer, tokens: torch.Tensor, passes: int
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Cross entropies in nats: the target's and each MTP pass's; tokens int64 [B, S + 2]."""
    batch, length = tokens.shape[0], tokens.shape[1] - 2
    mask = causal_window_mask(length, target.config.sliding_window).expand(batch, -1, -1, -1)
    streams, output = target_streams(
        target, tokens[:, :length], attention_mask={"sliding_attention": mask}, use_cache=False
    )
    logits = target.lm_head(output.last_hidden_state)
    target_loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:-1].flatten())
    drafts = unrolled_logits(nextn, tokens[:, : length + 1], streams, passes)
    mtp = [
        F.cross_entropy(draft[:, number:].flatten(0, 1), tokens[:, 2 + number :].flatten())
        for number, draft in enumerate(drafts)
    ]
    return target_loss, mtp


def optimizers_for(target: nn.Module, nextn: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embedding, output, routers, mHC, norms and the like."""
    matrices, others = [], []
    for model in (target, nextn):
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                inner = "proj" in name and parameter.dim() >= 2
                (matrices if inner else others).append(parameter)
    muon = Muon(matrices, lr=rate, weight_decay=0.05)
    adamw = torch.optim.AdamW(others, lr=rate * 0.15, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    return [muon, adamw]


class Average:
    """A running average of both models' weights: better than the weights themselves while the rate is high."""

    def __init__(self, *models: nn.Module) -> None:
        self._live = models
        # One deepcopy for both: the copied MTP layer has to share the copied target's embedding and lm_head.
        self.models = copy.deepcopy(models)
        for model in self.models:
            model.requires_grad_(False).eval()

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Folds in the weights after `step` steps; called at every synchronisation."""
        keep = min(0.95, step / (step + 5 * SYNC_STEPS))
        for live, average in zip(self._live, self.models, strict=True):
            for weight, mean in zip(live.parameters(), average.parameters(), strict=True):
                mean.lerp_(weight, 1 - keep)
            for buffer, mean in zip(live.buffers(), average.buffers(), strict=True):
                mean.copy_(buffer)


@torch.no_grad()
def synchronise(models: list[nn.Module], progress: float) -> float:
    """Averages the workers' weights, selection biases and progress; returns the latter."""
    if not dist.is_initialized():
        return progress
    tensors = [p.data for model in models for p in model.parameters() if p.requires_grad]
    tensors += [
        buffer for model in models for name, buffer in model.named_buffers() if name.endswith("correction_bias")
    ]
    flat = torch.cat([*(tensor.flatten() for tensor in tensors), torch.tensor([progress])])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for tensor, mean in zip(tensors, flat[:-1].split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(mean.view_as(tensor))
    return flat[-1].item()


@torch.no_grad()
def evaluate(target: nn.Module, nextn: nn.Module, stream: torch.Tensor, length: int) -> tuple[float, list[float]]:
    """Held-out bits per byte of the target and of each of four MTP passes, over 8 evenly spaced windows."""
    starts = torch.linspace(0, len(stream) - length - 2, 8).long()
    total = torch.zeros(5)
    for start in starts.tolist():
        target_loss, mtp = losses(target, nextn, stream[None, start : start + length + 2], 4)
        total += torch.stack([target_loss, *mtp]) / len(starts) / math.log(2)
    return total[0].item(), total[1:].tolist()


class Trainer:
    """One worker's models, optimizers and data."""

    def __init__(self, args: argparse.Namespace, rank: int) -> None:
        torch.manual_seed(SEED)
        self._args, self._rank = args, rank
        self.target, self.nextn = (model.train() for model in build(args.resume))
        self._data = token_stream(held_out=False)
        self._optimizers = optimizers_for(self.target, self.nextn, args.learning_rate)
        self._peaks = [optimizer.param_groups[0]["lr"] for optimizer in self._optimizers]
        self._balance = ExpertBalance([self.target, self.nextn])
        self._generator = torch.Generator().manual_seed(SEED + rank + (1000 if args.resume else 0))

    def step(self, factor: float, passes: int) -> tuple[float, list[float]]:
        """One update at `factor` times the peak rates; returns bits per byte of the target and of each MTP pass."""
        args = self._args
        starts = torch.randint(len(self._data) - args.length - 2, (args.batch,), generator=self._generator)
        tokens = torch.stack([self._data[s : s + args.length + 2] for s in starts.tolist()])
        target_loss, mtp = losses(self.target, self.nextn, tokens, passes)
        for optimizer, peak in zip(self._optimizers, self._peaks, strict=True):
            optimizer.param_groups[0]["lr"] = peak * factor
            optimizer.zero_grad(set_to_none=True)
        weighted = sum(weight * loss for weight, loss in zip(MTP_WEIGHTS, mtp, strict=False))
        (target_loss + weighted).backward()
        nn.utils.clip_grad_norm_([*self.target.parameters(), *self.nextn.parameters()], 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
        self._balance.step()
        return target_loss.item() / math.log(2), [loss.item() / math.log(2) for loss in mtp]


def train(rank: int, args: argparse.Namespace, rendezvous: str) -> None:
    """What one worker does; the first one also reports and saves."""
    os.nice(10)
    torch.set_num_threads(1)
    if args.workers > 1:
        dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=args.workers)
    trainer = Trainer(args, rank)
    models = [trainer.target, trainer.nextn]
    average = Average(*models) if rank == 0 else None
    held_out = token_stream(held_out=True)
    schedule = Schedule(args.steps, args.minutes)
    started = last_saved = time.monotonic()
    step, progress = 0, 0.0
    while progress < 1.0:
        factor = schedule.factor(step, progress)
        unroll = progress >= UNROLL_FROM and step % UNROLL_EVERY == 0
        passes = UNROLL_PASSES if unroll else 1
        target_bits, mtp_bits = trainer.step(factor, passes)
        step += 1
        if step % SYNC_STEPS:
            continue
        progress = synchronise(models, schedule.progress(step, started))
        if rank != 0:
            continue
        average.update(step)
        elapsed = time.monotonic() - started
        if step % 50 == 0:
            speed = step * args.workers * args.batch * args.length / elapsed
            print(
                f"step {step} {elapsed:.0f} s {speed:.0f} tokens/s rate {factor:.3f} bits per byte: "
                f"target {target_bits:.3f} mtp {' '.join(f'{bits:.3f}' for bits in mtp_bits)}",
                flush=True,
            )
        if progress >= 1.0 or time.monotonic() - last_saved > SAVE_SECONDS:
            bits, mtp_bits = evaluate(*average.models, held_out, args.length)
            print(f"held out after step {step}: target {bits:.3f} mtp {[round(b, 3) for b in mtp_bits]}", flush=True)
            save_checkpoint(args.out, *average.models)
            last_saved = time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for config.json and the two weight files")
    parser.add_argument("--steps", type=int, default=10**9, help="stop after this many steps")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after this much wall time")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--batch", type=int, default=2, help="sequences a step and worker")
    parser.add_argument("--length", type=int, default=640, help="tokens a sequence")
    parser.add_argument("--learning-rate", type=float, default=0.02, help="Muon's; AdamW takes 0.15 of it")
    parser.add_argument("--resume", type=Path, help="start from this checkpoint's weights")
    args = parser.parse_args()
    if args.steps == 10**9 and args.minutes == 1e9:
        parser.error("give --steps or --minutes, got neither")
    with tempfile.TemporaryDirectory() as folder:
        rendezvous = f"{folder}/workers"
        if args.workers == 1:
            train(0, args, rendezvous)
        else:
            multiprocessing.spawn(train, args=(args, rendezvous), nprocs=args.workers)


if __name__ == "__main__":
    main()
