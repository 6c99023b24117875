# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes on one machine, for the PyTorch parts of tests/gpu.

A script calls main(): without --rank it starts one process per rank, each with an NCCL_HOSTID of its own, so that NCCL
believes in as many hosts and takes the network; with --rank it is one of them. Ranks meet through a file, so no port is
opened by PyTorch. The parent writes one JSON document with what all ranks have said and whether they agree.
"""
import argparse
import ctypes
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time

SKIP = 77


def parser(description):
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--steps", type=int, default=200, help="training steps (200)")
    p.add_argument("--max-seconds", type=float, default=0,
                   help="end earlier when training has taken this long (0: never)")
    p.add_argument("--backend", choices=["nccl", "gloo"], default="nccl",
                   help="gloo trains on the CPU: for testing these scripts without a GPU")
    p.add_argument("--out", help="file for the result, JSON")
    p.add_argument("--logs", help="folder for the ranks' output (default: a temporary one)")
    p.add_argument("--timeout", type=float, default=300, help="seconds for everything (300)")
    p.add_argument("--same-host", action="store_true", help="leave NCCL_HOSTID alone")
    p.add_argument("--rank", type=int, default=-1, help=argparse.SUPPRESS)
    p.add_argument("--meet", help=argparse.SUPPRESS)
    return p


def missing(backend):
    """Why this machine cannot run the part, or None."""
    try:
        import torch
    except ImportError as e:
        return f"PyTorch is not installed ({e})"
    if backend == "nccl" and not torch.cuda.is_available():
        return "PyTorch sees no GPU"
    if backend == "nccl" and not torch.distributed.is_nccl_available():
        return "this PyTorch has no NCCL"
    return None


def setup(args):
    """In a rank: the process group and the device. Everything that can be is made deterministic."""
    import datetime
    import torch
    import torch.distributed as dist
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    # The fused attention kernels add in an order that varies from run to run.
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    if args.backend == "gloo":
        torch.set_num_threads(1)
    device = torch.device("cuda", 0) if args.backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(args.backend, init_method="file://" + args.meet, rank=args.rank,
                            world_size=args.ranks, timeout=datetime.timedelta(seconds=args.timeout))
    return device


def agree_to_stop(args, started, device):
    """True on every rank once rank 0's time is up: ranks must leave the loop at the same step."""
    import torch
    import torch.distributed as dist
    if not args.max_seconds:
        return False
    late = torch.tensor([float(time.monotonic() - started > args.max_seconds)], device=device)
    dist.broadcast(late, 0)
    return bool(late.item())


def digest(tensors):
    """One hash over the bytes of all tensors, and the norm of each, for comparisons with a tolerance."""
    h = hashlib.sha256()
    norms = []
    for t in tensors:
        c = t.detach().to("cpu").contiguous()
        # Hash the bytes in place, because Python objects of a large model take minutes.
        h.update((ctypes.c_char * (c.numel() * c.element_size())).from_address(c.data_ptr()))
        norms.append(c.double().norm().item())
    return h.hexdigest(), norms


def say(args, result):
    """A rank's result, for the parent."""
    with open(f"{args.meet}.rank{args.rank}", "w", encoding="utf-8") as f:
        json.dump(result, f)


def identity(args, rank):
    """The variables that make a rank a host of its own, for NCCL and for software verbs."""
    if args.same_host:
        return {}
    host = {"NCCL_HOSTID": f"pvn-rank-{rank}"}
    if "PVN_SOFTVERBS_DIR" in os.environ:
        tree = os.path.join(os.environ["PVN_SOFTVERBS_DIR"], f"sys{rank}")
        os.makedirs(tree, exist_ok=True)
        host.update(PVN_SOFTVERBS_HOST=str(rank + 1), PVN_SOFTVERBS_SYSFS=tree, NCCL_PVRDMA_SYSFS_ROOT=tree)
    return host


def _start(script, args, rank, meet, logs):
    env = dict(os.environ)
    env.update(identity(args, rank))
    # A rank has one GPU or one core. Its libraries must not start more threads.
    env.setdefault("OMP_NUM_THREADS", "1")
    command = [sys.executable, script] + sys.argv[1:] + ["--rank", str(rank), "--meet", meet]
    with open(os.path.join(logs, f"{os.path.basename(script)}.rank{rank}.log"), "w", encoding="utf-8") as log:
        return subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def _supervise(procs, timeout):
    """Waits for all; a failed rank gives the others ten seconds. Exit statuses, None where it was stopped."""
    stop = time.monotonic() + timeout
    while any(p.poll() is None for p in procs):
        if any(p.poll() not in (None, 0) for p in procs):
            stop = min(stop, time.monotonic() + 10)
        if time.monotonic() > stop:
            break
        time.sleep(0.05)
    stopped = [p for p in procs if p.poll() is None]
    for p in stopped:
        p.kill()
        p.wait()
    return [None if p in stopped else p.returncode for p in procs]


def _tail(logs, script, rank, lines=15):
    path = os.path.join(logs, f"{os.path.basename(script)}.rank{rank}.log")
    with open(path, encoding="utf-8", errors="replace") as f:
        return "".join(f"    {line}" for line in f.readlines()[-lines:])


def launch(script, args):
    """The parent: starts the ranks, gathers what they say. Returns (status, results by rank)."""
    with tempfile.TemporaryDirectory(prefix="pvn-ranks-") as tmp:
        logs = args.logs or tmp
        os.makedirs(logs, exist_ok=True)
        meet = os.path.join(tmp, "meet")
        procs = []
        try:
            for rank in range(args.ranks):
                procs.append(_start(script, args, rank, meet, logs))
            codes = _supervise(procs, args.timeout)
        finally:
            for p in procs:
                if p.poll() is None:
                    p.kill()
        bad = [r for r, c in enumerate(codes) if c != 0]
        if bad:
            for r in bad:
                what = "was stopped, it did not end in time" if codes[r] is None else f"ended with {codes[r]}"
                print(f"rank {r} {what}:\n{_tail(logs, script, r)}", file=sys.stderr)
            return 1, []
        return 0, heard(args, meet)


def heard(args, meet):
    """The results of every rank."""
    results = []
    for rank in range(args.ranks):
        with open(f"{meet}.rank{rank}", encoding="utf-8") as f:
            results.append(json.load(f))
    return results


def main(script, args, rank_main, judge, start=launch):
    """Entry point of a part. rank_main(args) runs in each rank and says something; judge(args, results) returns a list
    of complaints and a dictionary for --out; start(script, args) brings the ranks to life."""
    why = missing(args.backend)
    if why:
        print(f"SKIP {why}")
        return SKIP
    if args.rank >= 0:
        rank_main(args)
        # An orderly end of the group can hang if a peer has already gone. All output is written before.
        sys.stdout.flush()
        os._exit(0)
    status, results = start(script, args)
    if status:
        return status
    complaints, summary = judge(args, results)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            json.dump(summary, f, indent=1)
    for c in complaints:
        print(f"not ok: {c}")
    return 1 if complaints else 0


def differing(results, key):
    """The ranks whose `key` is not rank 0's."""
    return [r for r, x in enumerate(results) if x[key] != results[0][key]]
