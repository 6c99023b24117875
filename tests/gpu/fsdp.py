#!/usr/bin/env python3
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""ZeRO-3 / FSDP traffic: parameters are sharded, all-gathered before use, gradients reduce-scattered.

Uses PyTorch's fully_shard (FSDP2) where it exists, otherwise the same calls by hand, and says which. Passes when the
losses are the same on all ranks and those of an unsharded run on one rank's worth of summed gradients, within the
tolerance of another order of additions.
"""
import math
import sys
import time

import ranks

# BERT-Large at this rate leaves its minimum if its first gradients, whose norm is 40, are applied unclipped.
LARGEST_NORM = 1.0


def arguments():
    p = ranks.parser(__doc__.splitlines()[0])
    p.set_defaults(steps=12)
    p.add_argument("--model", default="bert-large")
    p.add_argument("--tolerance", type=float, default=2e-3)
    p.add_argument("--by-hand", action="store_true", help="do not use fully_shard even where it exists")
    return p.parse_args()


class Sharded:
    """ZeRO-3 by hand, one unit: a flat parameter of which each rank keeps a share."""

    def __init__(self, model, world, rank, rate):
        import torch
        self.params = list(model.parameters())
        total = sum(p.numel() for p in self.params)
        self.share = -(-total // world)
        self.world, self.rate = world, rate
        flat = torch.cat([p.detach().flatten() for p in self.params])
        flat = torch.nn.functional.pad(flat, (0, self.share * world - total))
        self.mine = flat[rank * self.share:(rank + 1) * self.share].clone()

    def gather(self):
        import torch.distributed as dist
        full = self.mine.new_empty(self.share * self.world)
        dist.all_gather_into_tensor(full, self.mine)
        at = 0
        for p in self.params:
            p.data = full[at:at + p.numel()].view_as(p)
            at += p.numel()

    def step(self):
        import torch
        import torch.distributed as dist
        grads = torch.cat([p.grad.flatten() for p in self.params])
        grads = torch.nn.functional.pad(grads, (0, self.share * self.world - grads.numel()))
        mine = self.mine.new_empty(self.share)
        dist.reduce_scatter_tensor(mine, grads)
        mine /= self.world
        norm = mine.square().sum()
        dist.all_reduce(norm)
        mine *= (LARGEST_NORM / (norm.sqrt() + 1e-6)).clamp(max=1.0)
        self.mine -= self.rate * mine
        for p in self.params:
            p.grad = None


def shard(args, model, rate, world, rank):
    """(how, prepare(), step()) for the model, which is changed in place."""
    import torch
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        fully_shard = None
    if fully_shard is None or args.by_hand:
        z = Sharded(model, world, rank, rate)
        return "all-gather and reduce-scatter by hand", z.gather, z.step
    for layer in getattr(model, "layers", []):
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)

    def step():
        torch.nn.utils.clip_grad_norm_(model.parameters(), LARGEST_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return "fully_shard", lambda: None, step


def reference(args, models, torch, device):
    """Rank 0's own full training over all ranks' batches."""
    model, make, loss_of, rate = models.build(args.model)
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    data = [models.batches(make, r, 2, device) for r in range(args.ranks)]
    losses = []
    for step in range(args.steps):
        total = 0.0
        for r in range(args.ranks):
            x, want = data[r][step % 2]
            loss = loss_of(model(x), want) / args.ranks
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), LARGEST_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total)
    return losses


def train(args):
    import models
    import torch
    import torch.distributed as dist
    device = ranks.setup(args)
    expected = reference(args, models, torch, device) if args.rank == 0 else []
    if device.type == "cuda":
        torch.cuda.empty_cache()
    dist.barrier()
    model, make, loss_of, rate = models.build(args.model)
    model.to(device)
    count = sum(p.numel() for p in model.parameters())
    how, prepare, step_of = shard(args, model, rate, args.ranks, args.rank)
    data = models.batches(make, args.rank, 2, device)
    losses = []
    started = time.monotonic()
    for step in range(args.steps):
        x, want = data[step % 2]
        prepare()
        loss = loss_of(model(x), want)
        loss.backward()
        step_of()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / args.ranks)
    ranks.say(args, {"losses": losses, "expected": expected, "how": how, "parameters": count,
                     "seconds": time.monotonic() - started, "torch": torch.__version__})


def judge(args, results):
    first = results[0]
    complaints = []
    bad = ranks.differing(results, "losses")
    if bad:
        complaints.append(f"losses of ranks {bad} differ from rank 0's")
    losses = first["losses"]
    worst = max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(losses, first["expected"]))
    if not worst <= args.tolerance:
        complaints.append(f"losses differ from the unsharded run's by {worst:.3g} (allowed {args.tolerance:.3g})")
    # Steps alternate between two batches. So the latest loss of the first batch is among the last two.
    if not all(map(math.isfinite, losses)):
        complaints.append("a loss is not a number")
    elif not min(losses[-2:]) < losses[0]:
        complaints.append(f"the loss has not gone down: {losses[0]:.4f} to {losses[-1]:.4f}")
    print(f"fsdp {args.model}: {first['how']}, {args.ranks} ranks, {first['parameters'] / 1e6:.1f} M parameters, "
          f"{len(losses)} steps in {first['seconds']:.1f} s, loss {losses[0]:.4f} to {losses[-1]:.4f}, off the unsharded run by {worst:.2g}")
    return complaints, dict(first, ranks=args.ranks, model=args.model)


if __name__ == "__main__":
    _args = arguments()
    sys.exit(ranks.main(__file__, _args, train, judge))
