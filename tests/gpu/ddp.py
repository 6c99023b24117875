#!/usr/bin/env python3
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""PyTorch DistributedDataParallel over several ranks on one GPU.

Passes when all ranks end with the same parameters bit for bit and have seen the same mean losses, and the loss has gone
down. `ddp.py --compare A.json B.json` compares two runs, e.g. over the plugin and over NCCL's own sockets: two ranks
add two numbers, whose order does not matter, so equal bits are expected; more ranks may differ by the order of the sum.
"""
import json
import sys
import time

import ranks


def arguments():
    p = ranks.parser(__doc__.splitlines()[0])
    p.add_argument("--model", default="resnet50", help="resnet50, bert-large, tiny-resnet, tiny-bert (resnet50)")
    p.add_argument("--steps-of", metavar="JSON", help="as many steps as that run took")
    p.add_argument("--compare", nargs=2, metavar="JSON", help="compare two results and do nothing else")
    p.add_argument("--tolerance", type=float, default=1e-4, help="relative, of losses and norms in --compare")
    return p.parse_args()


def train(args):
    import models
    import torch
    import torch.distributed as dist
    device = ranks.setup(args)
    model, make, loss_of, rate = models.build(args.model)
    model = torch.nn.parallel.DistributedDataParallel(model.to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    data = models.batches(make, args.rank, 2, device)
    losses = []
    started = time.monotonic()
    for step in range(args.steps):
        x, want = data[step % len(data)]
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model(x), want)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append((mean.double() / args.ranks).item().hex())
        if step % 8 == 7 and ranks.agree_to_stop(args, started, device):
            break
    seconds = time.monotonic() - started
    sha, norms = ranks.digest(model.parameters())
    count = sum(p.numel() for p in model.parameters())
    ranks.say(args, {"losses": losses, "sha256": sha, "norms": norms, "seconds": seconds, "parameters": count,
                     "torch": torch.__version__, "backend": args.backend})


def judge(args, results):
    first = results[0]
    complaints = []
    for key, what in (("sha256", "parameters"), ("losses", "mean losses")):
        bad = ranks.differing(results, key)
        if bad:
            complaints.append(f"{what} of ranks {bad} differ from rank 0's")
    losses = [float.fromhex(x) for x in first["losses"]]
    if not all(x == x and abs(x) < 1e30 for x in losses):
        complaints.append("a loss is not a number")
    elif len(losses) >= 20 and not min(losses[-4:]) < losses[0]:
        complaints.append(f"the loss has not gone down: {losses[0]:.4f} to {losses[-1]:.4f}")
    summary = dict(first, ranks=args.ranks, model=args.model, steps=len(losses))
    print(f"ddp {args.model}: {args.ranks} ranks, {first['parameters'] / 1e6:.1f} M parameters, {len(losses)} steps in "
          f"{first['seconds']:.1f} s, loss {losses[0]:.4f} to {losses[-1]:.4f}, sha256 {first['sha256'][:12]}")
    return complaints, summary


def compare(args):
    a, b = (json.load(open(path, encoding="utf-8")) for path in args.compare)
    for key in ("model", "ranks", "steps", "parameters"):
        if a[key] != b[key]:
            print(f"not ok: the runs are not comparable: {key} {a[key]} and {b[key]}")
            return 1
    if a["sha256"] == b["sha256"] and a["losses"] == b["losses"]:
        print(f"compare {a['model']}: parameters and losses of {a['steps']} steps are bit-equal")
        return 0
    pairs = list(zip(map(float.fromhex, a["losses"]), map(float.fromhex, b["losses"])))
    pairs += list(zip(a["norms"], b["norms"]))
    worst = max(abs(x - y) / max(abs(x), abs(y), 1e-12) for x, y in pairs)
    print(f"compare {a['model']}: largest relative difference {worst:.3g}, allowed {args.tolerance:.3g}")
    return 0 if worst <= args.tolerance else 1


def run():
    args = arguments()
    if args.compare:
        return compare(args)
    if args.steps_of:
        with open(args.steps_of, encoding="utf-8") as f:
            args.steps = json.load(f)["steps"]
            args.max_seconds = 0
    return ranks.main(__file__, args, train, judge)


if __name__ == "__main__":
    sys.exit(run())
