# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""One round of failover_random.py --transport: a ring all-reduce between two network namespaces, every element checked, and faults
at times that are drawn from a seed. Two links through a router join the hosts; RDMA is softverbs beside them.

Faults are serial: one is undone before the next begins, however late either comes on a busy machine, so that a path is left
at all times, but for outages of SILENCE seconds, far below FAILOVER_TIMEOUT, and no command goes to a stopped rank. Over TCP some
faults of paths have a rank stopped meanwhile, for no longer either.

The ring runs by the clock (pvn-perf ring --duration). One that has not ended LATE seconds after its time, or says nothing at its
start, is looked at twice by pvn-topo stat, with the stacks of its ranks: it hangs where no message moved in between; otherwise
it is slow, and is waited for, up to SLOW_LOOKS times."""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FAILOVER_TIMEOUT = 30
SILENCE = 5
LATE = 60  # a failover that begins with the last iteration ends far earlier, also on a busy machine
BETWEEN_LOOKS = 20  # at a late job
SLOW_LOOKS = 10
ENDS = 8  # of the ring's comms: two of each direction, both ends of each
LOSSES_PER_FAULT = 4  # at each end, before it counts as a storm
NOTICED = 3.0  # a path that is silent for longer is given up, see ENV
ENV = {"NCCL_PVRDMA_FAILOVER": "1", "NCCL_PVRDMA_FAILOVER_TIMEOUT": f"{FAILOVER_TIMEOUT}s", "NCCL_SOCKET_IFNAME": "v",
       "NCCL_PVRDMA_TCP_USER_TIMEOUT": "1s", "NCCL_PVRDMA_KEEPALIVE_IDLE": "1s", "NCCL_PVRDMA_KEEPALIVE_INTVL": "1s",
       "NCCL_PVRDMA_KEEPALIVE_CNT": "1", "NCCL_PVRDMA_HELLO_TIMEOUT": "2s", "NCCL_PVRDMA_OFFER_TIMEOUT": "2s",
       "NCCL_PVRDMA_VERIFY_TIMEOUT": "2s", "NCCL_IB_TIMEOUT": "14"}
STATUSES = ["RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "REM_ABORT_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR", "FATAL_ERR", "WR_FLUSH_ERR"]


def sh(*argv, check=True, env=None):
    done = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, argv))}: {done.stdout.strip()}")
    return done.stdout


class Hosts:
    """Namespaces a and b, and r, a router: v0 and v1 of both lead to r0K (of a) and r1K (of b)."""

    def __init__(self):
        self.a, self.b, self.r = (f"pvnsk{os.getpid()}{x}" for x in "abr")

    def make(self):
        for n in (self.a, self.b, self.r):
            sh("ip", "netns", "add", n)
            sh("ip", "-n", n, "link", "set", "lo", "up")
        sh("ip", "netns", "exec", self.r, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        # Packets that are too large are lost without a report.
        sh("ip", "-n", self.r, "rule", "add", "ipproto", "icmp", "blackhole", "pref", 4)
        for side, n in enumerate((self.a, self.b)):
            for k in (0, 1):
                sh("ip", "link", "add", f"v{k}", "netns", n, "mtu", 9000, "type", "veth", "peer", "name", f"r{side}{k}", "netns", self.r,
                   "mtu", 9000)
                sh("ip", "-n", n, "addr", "add", f"10.9.{2 * k + side}.1/24", "dev", f"v{k}")
                sh("ip", "-n", self.r, "addr", "add", f"10.9.{2 * k + side}.254/24", "dev", f"r{side}{k}")
                sh("ip", "-n", self.r, "link", "set", f"r{side}{k}", "up")
                self.up(k, side)
        for _ in range(200):
            if [sh("ip", "-n", n, "-br", "link").count(" UP ") for n in (self.a, self.b, self.r)] == [2, 2, 4]:
                return
            time.sleep(0.05)
        raise RuntimeError("the links do not come up")

    def remove(self):
        for n in (self.a, self.b, self.r):
            sh("ip", "netns", "del", n, check=False)

    def host(self, side):
        return self.b if side else self.a

    def down(self, k, side):
        sh("ip", "-n", self.host(side), "link", "set", f"v{k}", "down")

    def up(self, k, side):
        """The kernel has removed the route with the link."""
        sh("ip", "-n", self.host(side), "link", "set", f"v{k}", "up")
        sh("ip", "-n", self.host(side), "route", "add", f"10.9.{2 * k + 1 - side}.0/24", "via", f"10.9.{2 * k + side}.254")

    def silent(self, verb, k, sides=(0, 1)):
        for side in sides:
            sh("ip", "-n", self.r, "rule", verb, "dev", f"r{side}{k}", "blackhole", "pref", 5)

    def mtu(self, k, mtu):
        for side in (0, 1):
            sh("ip", "-n", self.r, "link", "set", f"r{side}{k}", "mtu", mtu)

    def loss(self, verb, k, percent):
        for side in (0, 1):
            sh("ip", "netns", "exec", self.r, "tc", "qdisc", verb, "dev", f"r{side}{k}", "root", "netem", "loss", f"{percent}%")

    def connections(self):
        rows = sh("ip", "netns", "exec", self.a, "ss", "-Htn", "state", "established").split("\n")
        return sorted(tuple(row.split()[2:4]) for row in rows if " 10.9." in row)

    def kill(self, pick):
        """Resets all connections between the hosts, or the one of this share of their list; returns how many."""
        rows = self.connections()
        rows = rows if pick is None else rows[int(pick * len(rows)):][:1]
        for src, dst in rows:
            sh("ip", "netns", "exec", self.a, "ss", "-K", "src", src, "dst", dst)
        return len(rows)

    def sent(self, k):
        return sum(int(sh("ip", "netns", "exec", n, "cat", f"/sys/class/net/v{k}/statistics/tx_bytes")) for n in (self.a, self.b))

    def can_lose(self):
        """The kernel may be without netem."""
        try:
            self.loss("add", 0, 0)
            self.loss("del", 0, 0)
            return True
        except RuntimeError:
            return False


class Fault:
    """begin() returns how many it has reached; what it cuts has to lead to failovers if the job was using it. Within it another
    fault may begin after `delay` seconds, which is undone first."""

    def __init__(self, name, seconds, begin, end=lambda: None, uses=None, cuts=False):
        self.name, self.seconds, self.begin, self.end, self.uses, self.cuts = name, seconds, begin, end, uses, cuts
        self.within, self.delay = None, 0

    def __str__(self):
        return f"{self.name} {self.seconds:g} s" + (" with" if self.within else "")


class Round:
    def __init__(self, build, seed, transport, seconds, late=LATE):
        self.build, self.seed, self.transport, self.seconds, self.late = build, seed, transport, seconds, late
        self.random = random.Random(f"{transport} {seed}")
        self.hosts = Hosts()
        self.tmp = tempfile.mkdtemp()
        self.log = f"{self.tmp}/log"
        self.job = None
        self.fired, self.cut, self.bad = [], 0, ""
        self.rules = 0

    # Methods that inject a fault
    def ranks(self):
        with open(f"/proc/{self.job.pid}/task/{self.job.pid}/children") as f:
            return [int(pid) for pid in f.read().split()]

    def signal(self, number, which):
        pids = self.ranks()
        if which < len(pids):
            os.kill(pids[which], number)
        return len(pids) > which

    def command(self, *lines):
        done = subprocess.run([sys.executable, f"{HERE}/softverbs_command.py", *lines], env=self.env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        self.note(f"{lines}: {done.stdout}")
        if done.returncode != 0:
            # The ranks may be about to end.
            try:
                self.job.wait(5)
            except subprocess.TimeoutExpired:
                raise RuntimeError(done.stdout) from None
        return done.stdout if done.returncode == 0 else ""

    def rule(self, what):
        self.rules += 1
        return len(self.command("rules clear", f"rule s{self.rules} {what}") or "reached")

    def note(self, text):
        with open(f"{self.tmp}/notes", "a") as f:
            f.write(f"{time.monotonic() - self.began:.2f} {text.rstrip()}\n")

    def messages(self):
        """A sign of requests over RDMA."""
        return sum(int(n) for n in re.findall(r"\bsend_wr=(\d+)", self.command("stat")))

    # Methods that draw the random plan
    def path_faults(self, lossy):
        r, h = self.random, self.hosts
        k, side, t = r.randrange(2), r.randrange(2), round(r.uniform(0.2, 8), 2)
        short, share, percent = round(r.uniform(0.2, SILENCE), 2), r.random(), r.choice([1, 5, 20])
        link = lambda: h.sent(k)
        made = [
            lambda: Fault(f"link{k} of host {side} down", t, lambda: h.down(k, side) or 1, lambda: h.up(k, side), link, True),
            lambda: Fault(f"link{k} silent", t, lambda: h.silent("add", k) or 1, lambda: h.silent("del", k), link, t > NOTICED),
            lambda: Fault(f"link{k} silent from host {side}", t, lambda: h.silent("add", k, [side]) or 1,
                          lambda: h.silent("del", k, [side]), link),
            lambda: Fault(f"link{k} loses large packets", t, lambda: h.mtu(k, 1400) or 1, lambda: h.mtu(k, 9000), link),
            lambda: Fault("both links silent", short, lambda: (h.silent("add", 0), h.silent("add", 1)) and 1,
                          lambda: (h.silent("del", 0), h.silent("del", 1))),
            lambda: Fault("all connections reset", 0, lambda: h.kill(None), uses=lambda: h.sent(0) + h.sent(1), cuts=self.transport == "tcp"),
            lambda: Fault("a connection reset", 0, lambda: h.kill(share)),
        ]
        if lossy:
            made.append(lambda: Fault(f"link{k} loses {percent} %", t, lambda: h.loss("add", k, percent) or 1,
                                      lambda: h.loss("del", k, percent)))
        return r.choice(made)()

    def stop(self):
        t, which = round(self.random.uniform(0.05, SILENCE), 2), self.random.randrange(2)
        return Fault(f"rank {which} stopped", t, lambda: self.signal(signal.SIGSTOP, which), lambda: self.signal(signal.SIGCONT, which))

    def rdma_faults(self):
        r = self.random
        t, status, count = round(r.uniform(0.2, 8), 2), r.choice(STATUSES), r.randrange(1, 6)
        used = self.messages
        return r.choice([
            lambda: Fault("port down", t, lambda: bool(self.command("port * 1 down") or 1), lambda: self.command("port * 1 up"), used, t > NOTICED),
            lambda: Fault(f"queue pairs fail with {status}, {count} times", 1, lambda: self.rule(f"status status={status} every=50 count={count}"),
                          uses=used, cuts=True),
            lambda: Fault("a queue pair dies", 1, lambda: self.rule("die mode=1"), uses=used, cuts=True),
            lambda: Fault("device fails", t, lambda: bool(self.command("fatal *") or 1), lambda: self.command("renew *"), used, True),
            self.stop,
            lambda: Fault("control connections reset", 0, lambda: self.hosts.kill(None)),
        ])()

    def plan(self, lossy):
        """(pause before it, fault): more than a round has time for."""
        plan, at = [], 0
        while at < self.seconds:
            pause = self.random.uniform(0.3, 4)
            fault = self.path_faults(lossy) if self.transport == "tcp" else self.rdma_faults()
            if self.transport == "tcp" and self.random.random() < 0.4:
                other = self.stop()
                if self.random.random() < 0.5:
                    fault.within, fault.delay = other, round(self.random.uniform(0, fault.seconds), 2)
                else:
                    plan.append((self.random.uniform(0.3, 4), other))
                    at += other.seconds
            plan.append((pause, fault))
            at += pause + fault.seconds
        return plan

    # Methods that run the job
    def start(self):
        r = self.random
        self.env = dict(os.environ, NCCL_PVRDMA_STATS_DIR=f"{self.tmp}/stats", **ENV)
        if self.transport == "rdma":
            for name in ("fabric", "sys"):
                os.mkdir(f"{self.tmp}/{name}")
            # The plugin closes an adapter that no connection uses. "stay" lets commands still reach it.
            self.env.update(NCCL_PVRDMA_RDMA_MODE=r.choice(["record", "imm", "send"]), PVN_SOFTVERBS_PROFILE="pvrdma",
                            NCCL_PVRDMA_QPS=str(r.choice([1, 1, 1, 2, 3])), PVN_SOFTVERBS_SET="set stay 1",
                            NCCL_PVRDMA_VERBS_LIB=f"{self.build}/tests/softverbs/.libs/libsoftverbs.so",
                            PVN_SOFTVERBS_DIR=f"{self.tmp}/fabric", PVN_SOFTVERBS_SYSFS=f"{self.tmp}/sys",
                            NCCL_PVRDMA_SYSFS_ROOT=f"{self.tmp}/sys")
        with open(self.log, "w") as out:
            self.job = subprocess.Popen([f"{self.build}/pvn-perf", "ring", "--netns", f"{self.hosts.a},{self.hosts.b}", "--ranks", "2",
                                         "--check", "--verbose", "--plugin", f"{self.build}/.libs/libnccl-net-pvrdma.so", "--sizes",
                                         r.choice(["1M", "64K", "4M", "256K"]), "--duration", str(self.seconds), "--timeout", "90"],
                                        env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        self.began = time.monotonic()
        while self.text().count("receives from") < 4 and self.job.poll() is None and time.monotonic() - self.began < LATE:
            time.sleep(0.05)
        if self.job.poll() is None and self.text().count("receives from") < 4:
            self.bad = "the job does not begin"
        self.began = time.monotonic()

    def text(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def begin(self, fault):
        used = False
        if fault.cuts and fault.uses:
            before = fault.uses()
            time.sleep(0.2)
            used = fault.uses() - before > (1000000 if self.transport == "tcp" else 20)
        reached = fault.begin()
        self.note(f"{fault.name} for {fault.seconds} s, in use: {used}, reached: {reached}")
        if reached:
            self.fired.append(fault)
            self.cut += used

    def ended(self, seconds):
        """Waits; true if the job has ended meanwhile."""
        until = time.monotonic() + seconds
        while self.job.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        return self.job.poll() is not None

    def make(self, fault):
        """Until it is undone. True if the job has ended, which takes the rest along."""
        self.begin(fault)
        began = time.monotonic()
        if fault.within:
            if self.ended(fault.delay) or self.make(fault.within):
                return True
        if self.ended(began + fault.seconds - time.monotonic()):
            return True
        self.note(f"end of {fault.name}")
        fault.end()
        return False

    def inject(self, plan):
        """Until the job has ended, which may be before the last fault, or its time is over."""
        for pause, fault in plan:
            if time.monotonic() - self.began > self.seconds or self.ended(pause) or self.make(fault):
                return

    # Methods that examine a job that is late
    def stat(self, *options):
        return sh(f"{self.build}/topo/pvn-topo", *options, "stat", check=False, env=self.env)

    def moved(self):
        """Messages and bytes of each comm; None: nothing can be read."""
        try:
            doc = json.loads(self.stat("--json"))
            return sorted((p["pid"], c["comm"], c["messages"], c["bytes"]) for p in doc["processes"] for c in p["comms"])
        except (ValueError, KeyError) as e:
            self.say(f"pvn-topo --json stat: {e!r}")
            return None

    def say(self, text):
        """Into the output of this program, and into the folder that is kept."""
        print(text, flush=True)
        with open(f"{self.tmp}/late", "a") as f:
            f.write(text.rstrip() + "\n")

    def stacks(self):
        for pid in self.ranks():
            self.say(f"rank's process {pid}: " + ", ".join(" ".join(s.split()) for s in sh("cat", f"/proc/{pid}/status", check=False).split("\n")
                                                         if s.startswith(("State", "SigQ", "voluntary", "nonvoluntary"))))
            if shutil.which("gdb"):
                self.say(sh("gdb", "-p", pid, "-batch", "-nx", "-ex", "thread apply all bt", check=False))
            else:
                self.say(sh("sh", "-c", f"for t in /proc/{pid}/task/*; do cat $t/comm $t/wchan $t/stack; echo; done", check=False))

    def hangs(self):
        """True if nothing moves between two looks."""
        before = self.moved()
        self.say(f"{time.monotonic() - self.began:.0f} s, load {os.getloadavg()[0]:.1f}: first look\n" + self.stat("--all"))
        if self.ended(BETWEEN_LOOKS):
            return False
        after = self.moved()
        self.say(f"{time.monotonic() - self.began:.0f} s, load {os.getloadavg()[0]:.1f}: second look\n" + self.stat("--all"))
        self.stacks()
        return before is None or after is None or before == after

    def wait(self):
        """Until the job has ended; what it does where it is late is in the output."""
        wait = max(0, self.began + self.seconds - time.monotonic()) + self.late
        for _ in range(SLOW_LOOKS):
            if self.ended(wait):
                return
            wait = self.late
            if self.hangs():
                self.bad = "the job does not end: nothing moved between two looks"
                return
            self.say("the job is slow: messages moved between the two looks, and it is waited for")
        if self.job.poll() is None:
            self.bad = f"the job does not end, although messages move, {SLOW_LOOKS} times {self.late} s after its time"

    def failovers(self):
        """Like lines are folded into one."""
        n = 0
        for line in self.text().split("\n"):
            if "connected again after" in line:
                folded = re.search(r"(\d+) more in \d+ s like: ", line)
                n += int(folded.group(1)) if folded else 1
        return n

    def judge(self):
        out, failovers = self.text(), self.failovers()
        if "WRONG DATA" in out:
            self.bad = "WRONG DATA"
        elif self.job.returncode != 0 or "all data verified" not in out:
            self.bad = f"the job has ended with status {self.job.returncode}"
        elif not self.fired:
            self.bad = "no fault has fired"
        elif self.cut and not failovers:
            self.bad = f"{self.cut} paths in use were cut, and there was no failover"
        elif failovers > ENDS * LOSSES_PER_FAULT * len(self.fired):
            self.bad = "a storm of failovers"
        return failovers

    def run(self):
        """The number of failovers and of faults, and why the round is bad."""
        failovers = 0
        try:
            self.hosts.make()
            plan = self.plan(self.hosts.can_lose())
            self.start()
            if self.bad:
                self.hangs()
            else:
                self.inject(plan)
                self.wait()
            failovers = self.failovers() if self.bad else self.judge()
        except RuntimeError as e:
            if not self.job or self.job.poll() is None:
                self.bad = f"a fault could not be made: {e}"
            else:
                failovers = self.judge()
        finally:
            took = time.monotonic() - self.began if self.job else 0
            if self.job and self.job.poll() is None:
                for pid in self.ranks() + [self.job.pid]:
                    os.kill(pid, signal.SIGKILL)
                self.job.wait()
            self.hosts.remove()
            if self.bad:
                kept = f"soak-{self.transport}-{self.seed}"
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(self.tmp, kept, ignore=shutil.ignore_patterns("fabric", "sys"))
            shutil.rmtree(self.tmp)
        print(f"seed {self.seed} {self.transport}: {self.bad or 'all data verified'}, {len(self.fired)} faults, {self.cut} paths in use cut,"
              f" {failovers} failovers, {took:.0f} s: {'; '.join(str(f) for f in self.fired)}", flush=True)
        return failovers


def seconds_of(text):
    number, unit = re.fullmatch(r"([0-9.]+)([smh]?)", text).groups()
    return float(number) * {"": 1, "s": 1, "m": 60, "h": 3600}[unit]


def soak(build, transport, duration, rounds, seed, length, late):
    """Status 1 at the first bad round."""
    kinds = ["tcp", "rdma"] if transport == "both" else [transport]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which removes the namespaces
    end, done, faults, failovers, cut = time.monotonic() + duration, 0, 0, 0, 0
    while done < rounds and time.monotonic() < end:
        r = Round(build, seed + done // len(kinds), kinds[done % len(kinds)], length, late)
        failovers += r.run()
        faults, cut, done = faults + len(r.fired), cut + r.cut, done + 1
        if r.bad:
            print(f"its log, and when which fault came, lie in soak-{r.transport}-{r.seed}; again: failover_random.py --transport "
                  f"{r.transport} --rounds 1 --seed {r.seed} --round {length:g}")
            break
    print(f"{done} rounds, {faults} faults, {cut} paths in use cut, {failovers} failovers{', the last round was bad' if r.bad else ''}")
    return 1 if r.bad else 0
