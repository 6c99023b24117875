#!/usr/bin/env python3
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""Horovod's traffic: parameters broadcast once, then gradients fused into buffers of 64 MiB and summed.

Where Horovod with NCCL is installed, it is Horovod itself (hvd.DistributedOptimizer). Where it is not, the same
collectives are called through torch.distributed in the order Horovod calls them, and the result says so: that proves
the transport under such traffic, not Horovod.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time

import ranks

FUSION = 64 << 20


def arguments():
    p = ranks.parser(__doc__.splitlines()[0])
    p.set_defaults(steps=50)
    p.add_argument("--model", default="resnet50")
    args = p.parse_args()
    if "HOROVOD_RANK" in os.environ:  # under horovodrun, which does not pass arguments by rank
        args.rank = int(os.environ["HOROVOD_RANK"])
    return args


def installed():
    """Why Horovod itself cannot be used here, or None."""
    try:
        import horovod.torch as hvd
    except Exception as e:  # its import can fail for many reasons: missing MPI, other PyTorch, other ABI
        return f"horovod.torch cannot be imported: {type(e).__name__}"
    if not hvd.nccl_built():
        return "this Horovod was built without NCCL"
    return None if shutil.which("horovodrun") else "horovodrun is not in PATH"


def launch_horovod(script, args):
    """Starts the ranks with horovodrun and its gloo controller, which needs neither MPI nor ssh on one machine."""
    with tempfile.TemporaryDirectory(prefix="pvn-ranks-") as tmp:
        meet = os.path.join(tmp, "meet")
        command = ["horovodrun", "--gloo", "-np", str(args.ranks), "-H", f"localhost:{args.ranks}", sys.executable, script]
        command += sys.argv[1:] + ["--meet", meet]
        try:
            done = subprocess.run(command, timeout=args.timeout, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            print(f"horovodrun did not end within {args.timeout:.0f} s", file=sys.stderr)
            return 1, []
        return (1, []) if done.returncode else (0, ranks.heard(args, meet))


class Fused:
    """Gradients summed as Horovod does: in the order in which they become ready (last layer first), copied into fusion
    buffers, all-reduced, divided and copied back."""

    def __init__(self, model, world):
        self.params = [p for p in reversed(list(model.parameters()))]
        self.world = world

    def broadcast(self, buffers):
        import torch.distributed as dist
        for t in [p.data for p in reversed(self.params)] + list(buffers):
            dist.broadcast(t, 0)

    def groups(self):
        group, size = [], 0
        for p in self.params:
            n = p.grad.numel() * p.grad.element_size()
            if group and size + n > FUSION:
                yield group
                group, size = [], 0
            group.append(p.grad)
            size += n
        if group:
            yield group

    def reduce(self):
        import torch
        import torch.distributed as dist
        for group in self.groups():
            flat = torch.cat([g.flatten() for g in group])
            dist.all_reduce(flat)
            flat /= self.world
            at = 0
            for g in group:
                g.copy_(flat[at:at + g.numel()].view_as(g))
                at += g.numel()


def uneven(args, device):
    """hvd.allgather of tensors whose first dimension differs by rank, and hvd.alltoall: sizes first, then the data."""
    import torch
    import torch.distributed as dist
    mine = torch.full((args.rank + 1, 3), float(args.rank), device=device)
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(args.ranks)]
    dist.all_gather(sizes, torch.tensor([mine.shape[0]], device=device))
    rows = [int(s.item()) for s in sizes]
    padded = torch.zeros(max(rows), 3, device=device)
    padded[:mine.shape[0]] = mine
    parts = [torch.empty_like(padded) for _ in range(args.ranks)]
    dist.all_gather(parts, padded)
    got = torch.cat([part[:n] for part, n in zip(parts, rows)])
    want = torch.cat([torch.full((r + 1, 3), float(r)) for r in range(args.ranks)])
    return torch.equal(got.cpu(), want)


def train(args):
    if args.backend == "nccl" and installed() is None:
        train_horovod(args)
    else:
        train_calls(args)


def train_calls(args):
    import models
    import torch
    import torch.distributed as dist
    device = ranks.setup(args)
    model, make, loss_of, rate = models.build(args.model)
    if args.rank:  # only the broadcast makes the ranks equal
        torch.manual_seed(100 + args.rank)
        for p in model.parameters():
            torch.nn.init.normal_(p)
    model.to(device)
    fused = Fused(model, args.ranks)
    fused.broadcast(model.buffers())
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    data = models.batches(make, args.rank, 2, device)
    losses = []
    started = time.monotonic()
    for step in range(args.steps):
        x, want = data[step % 2]
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model(x), want)
        loss.backward()
        fused.reduce()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append((mean.double() / args.ranks).item().hex())
    sha, _ = ranks.digest(model.parameters())
    why = "training on the CPU" if args.backend == "gloo" else installed()
    ranks.say(args, {"losses": losses, "sha256": sha, "seconds": time.monotonic() - started,
                     "gathered": uneven(args, device), "how": f"Horovod's calls through torch.distributed ({why})"})


def train_horovod(args):
    os.environ.update(ranks.identity(args, args.rank))  # before NCCL is loaded by the first collective
    import horovod.torch as hvd
    import models
    import torch
    hvd.init()
    torch.cuda.set_device(0)
    model, make, loss_of, rate = models.build(args.model)
    model.cuda()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=rate),
                                         named_parameters=model.named_parameters())
    data = models.batches(make, args.rank, 2, torch.device("cuda", 0))
    losses = []
    started = time.monotonic()
    for step in range(args.steps):
        x, want = data[step % 2]
        optimizer.zero_grad()
        loss = loss_of(model(x), want)
        loss.backward()
        optimizer.step()
        losses.append(hvd.allreduce(loss.detach()).item().hex())
    gathered = hvd.allgather(torch.full((hvd.rank() + 1, 3), float(hvd.rank())).cuda())
    sha, _ = ranks.digest(model.parameters())
    ranks.say(args, {"losses": losses, "sha256": sha, "seconds": time.monotonic() - started,
                     "gathered": gathered.shape[0] == args.ranks * (args.ranks + 1) // 2, "how": "Horovod"})


def judge(args, results):
    first = results[0]
    complaints = []
    for key, what in (("sha256", "parameters"), ("losses", "mean losses")):
        bad = ranks.differing(results, key)
        if bad:
            complaints.append(f"{what} of ranks {bad} differ from rank 0's")
    if not all(r["gathered"] for r in results):
        complaints.append("the all-gather of uneven sizes is wrong")
    losses = [float.fromhex(x) for x in first["losses"]]
    if not min(losses[-4:]) < losses[0]:
        complaints.append(f"the loss has not gone down: {losses[0]:.4f} to {losses[-1]:.4f}")
    print(f"hvd {args.model}: {first['how']}, {args.ranks} ranks, {len(losses)} steps in {first['seconds']:.1f} s, "
          f"loss {losses[0]:.4f} to {losses[-1]:.4f}")
    return complaints, dict(first, ranks=args.ranks, model=args.model)


if __name__ == "__main__":
    _args = arguments()
    _start = ranks.launch
    if _args.backend == "nccl" and ranks.missing("nccl") is None and installed() is None:
        _start = launch_horovod
    sys.exit(ranks.main(__file__, _args, train, judge, _start))
