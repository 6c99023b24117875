#!/usr/bin/env python3
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""Random faults while a ring all-reduce between two processes runs, every element checked, with failover. For long runs by hand.

failover_random.py --transport tcp|rdma|both [--duration 1h] [--rounds N] [--seed N] [--round 30s] [--late 60s]: as root, in network namespaces
that it makes and removes. Faults come at random times from outside (soak.py): links, connections, ports, devices, stopped
processes. Each round has to end with all data verified, since a path is left. Status 1 at the first that does not, whose logs
are kept and whose seed is named. A job that is late shows two looks by pvn-topo stat and its stacks: it hangs, or is slow. A seed gives the same faults each time, though not at the same moment of the job.

failover_random.py [--first SEED] [--seeds N]: by rules of softverbs, at the n-th call or request; one seed takes 1 s to 10 s.
A run may end in order with a reason: where the first registration is refused, or where nothing is left to carry the data.
Status 1: wrong data, or a rank that waits without end; its output lies in failover-SEED.log."""
import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

import soak

# The statuses of a lost path. A wrong request is left out, because it ends the comm on purpose.
STATUSES = ["RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "REM_ABORT_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR", "FATAL_ERR", "WR_FLUSH_ERR"]
CALLS = ["create_qp", "modify_qp", "create_cq", "reg_mr", "post_send", "post_recv", "poll_cq", "query_port", "query_gid"]


def rule(r, i):
    """One or two lines for PVN_SOFTVERBS_FAULTS. Not `dup`: copies would also arrive on queue pairs that live on."""
    nth = r.randrange(60, 1500)
    repeats = f"nth={nth} every={r.randrange(100, 900)} count={r.randrange(1, 6)}"
    return r.choice([
        lambda: f"rule r{i} status status={r.choice(STATUSES)} {repeats}",
        lambda: f"rule r{i} drop_ack {repeats}",
        lambda: f"rule r{i} drop {repeats}",
        lambda: f"rule r{i} delay ms={r.choice([1, 20, 200])} {repeats}",
        lambda: f"rule r{i} fail call={r.choice(CALLS)} errno={r.choice(['ENOMEM', 'EIO', 'EINVAL'])}"
                f" nth={r.randrange(8, 60)} every={r.randrange(1, 20)} count={r.randrange(1, 4)}",
        lambda: f"rule r{i} do nth={nth} : qp #{r.randrange(2, 16)} {r.choice(['error', 'fatal', 'die', 'hang', 'overrun'])}",
        lambda: f"rule r{i} do nth={nth} : port * 1 down",
        lambda: f"rule r{i} do nth={nth} : port * 1 down\nrule u{i} do nth={nth + 1} : port * 1 up",
    ])()


def run(build, seed):
    r = random.Random(seed)
    mode, pairs = r.choice(["record", "imm", "send"]), r.choice([1, 1, 1, 2, 3])
    rules = "\n".join(rule(r, i) for i in range(r.randrange(1, 4)))
    profile = r.choice(["pvrdma", "roce"])  # roce: in imm mode with relaxed ordering, of which the adapter makes use
    tmp = tempfile.mkdtemp()
    try:
        for name in ("fabric", "sys"):
            os.mkdir(f"{tmp}/{name}")
        with open(f"{tmp}/rules", "w") as f:
            f.write(rules + "\n")
        env = dict(os.environ, NCCL_SOCKET_IFNAME="lo", NCCL_PVRDMA_FAILOVER="1", NCCL_PVRDMA_FAILOVER_TIMEOUT="15s",
                   NCCL_IB_TIMEOUT="14", NCCL_PVRDMA_RDMA_MODE=mode, NCCL_PVRDMA_QPS=str(pairs),
                   NCCL_PVRDMA_VERBS_LIB=f"{build}/tests/softverbs/.libs/libsoftverbs.so", PVN_SOFTVERBS_PROFILE=profile, PVN_SOFTVERBS_SET="set relaxed_ordering 2",
                   PVN_SOFTVERBS_DIR=f"{tmp}/fabric", PVN_SOFTVERBS_SYSFS=f"{tmp}/sys", NCCL_PVRDMA_SYSFS_ROOT=f"{tmp}/sys",
                   PVN_SOFTVERBS_FAULTS=f"{tmp}/rules", NCCL_PVRDMA_STATS_DIR=f"{tmp}/stats")
        done = subprocess.run(["timeout", "300", f"{build}/pvn-perf", "ring", "--ranks", "2", "--check", "--verbose", "--plugin",
                               f"{build}/.libs/libnccl-net-pvrdma.so", "--sizes", "8,64K,1M", "--duration", "0.5", "--timeout", "60"],
                              env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    finally:
        shutil.rmtree(tmp)
    out = done.stdout.decode(errors="replace")
    failovers = out.count("connected again after")
    if "all data verified" in out:
        verdict = "survived"
    elif "WRONG DATA" in out:
        verdict = "WRONG DATA"
    elif "nothing moved for" in out or done.returncode in (124, 137) or done.returncode < 0:
        verdict = "NO END"
    else:
        verdict = "ended"
    print(f"seed {seed} {profile} {mode} {pairs}: {verdict}, {failovers} failovers", flush=True)
    if verdict != "survived":
        print("    " + rules.replace("\n", "\n    "), flush=True)
        with open(f"failover-{seed}.log", "w") as f:
            f.write(out)
    return verdict


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build")
    p.add_argument("--first", type=int, default=1)
    p.add_argument("--seeds", type=int, default=50)
    p.add_argument("--transport", choices=["tcp", "rdma", "both"])
    p.add_argument("--duration", type=soak.seconds_of, help="of all rounds: 90, 10m, 1h (default)")
    p.add_argument("--rounds", type=int, help="default: as many as fit the duration")
    p.add_argument("--seed", type=int, help="of the first round; default: by the clock")
    p.add_argument("--round", type=soak.seconds_of, default=30, help="of each round, without what faults add")
    p.add_argument("--late", type=soak.seconds_of, default=soak.LATE, help="a job is looked at so long after its time (default: %(default)s s)")
    o = p.parse_args()
    if not o.transport and (o.duration or o.rounds or o.seed is not None):
        p.error("--duration, --rounds and --seed take --transport")
    build = os.path.abspath(o.build)
    for name in ("pvn-perf", "topo/pvn-topo", ".libs/libnccl-net-pvrdma.so", "tests/softverbs/.libs/libsoftverbs.so"):
        if not os.path.exists(f"{build}/{name}"):
            sys.exit(f"{build}/{name} is not built: run tests/build-tree.sh {o.build}, then make -C {o.build} check-build, or give --build DIR")
    if o.transport:
        if os.geteuid() != 0:
            sys.exit("network namespaces take root")
        duration = o.duration or (3600 if o.rounds is None else float("inf"))
        seed = int(time.time()) if o.seed is None else o.seed
        return soak.soak(build, o.transport, duration, o.rounds or float("inf"), seed, o.round, o.late)
    verdicts = [run(build, seed) for seed in range(o.first, o.first + o.seeds)]
    for name in sorted(set(verdicts)):
        print(f"{verdicts.count(name)} {name}")
    return any(v in ("WRONG DATA", "NO END") for v in verdicts)


if __name__ == "__main__":
    sys.exit(main())
